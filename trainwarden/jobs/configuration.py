"""The file of `trainwarden slurm watch` and `trainwarden ray watch`: which jobs are runs, and how they are judged."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.checkpoint.verdict import TRUSTS
from trainwarden.clients.ray_jobs import SubmittedJob
from trainwarden.clients.slurm.jobs import expanded_run_id, job_names
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId
from trainwarden.jobs.checkpoints import CheckpointFolder
from trainwarden.record.folder import runs_dir
from trainwarden.signals.pack import load_pack, shipped_packs
from trainwarden.yaml_file import YamlValue, read_yaml

if TYPE_CHECKING:
    from trainwarden.clients.slurm.jobs import SlurmJob

_KEYS = ("runs_dir", "log_roots", "mark", "marked", "grace", "max_jobs", "max_log_bytes", "jobs")
_JOB_KEYS = (
    "match", "ignore", "run_id", "logs", "inactivity", "restart_stalls", "signals", "policy",
    "framework", "model", "checkpoints", "resume",
)  # fmt: skip
# What a rule may match: of a job of SLURM, and of one of Ray, which has no user and no account.
_MATCHES = {
    "slurm": ("partition", "account", "user", "name", "comment"),
    "ray": ("submission_id", "entrypoint", "metadata.KEY"),
}
_METADATA = "metadata."
DEFAULT_RUN_ID = "%x-%A_%a"
DEFAULT_RAY_RUN_ID = "%j"
# Shorter than a run without a record may take before TrainRunNeverStarted fires.
_GRACE_SECONDS = 300.0
MAX_JOBS = 2000
MAX_LOG_BYTES = 8 * 2**30
_SAMPLES: Mapping[str, Mapping[str, str | None]] = {
    "slurm": job_names("4711", "4711", "1", "train", "alice"),
    "ray": {"j": "raysubmit_4711"},
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_POLICY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


@dataclass(frozen=True)
class JobRule:
    """What holds for the jobs that it matches.

    Attributes:
        match: patterns by field of a job; one of each field must match.
        ignore: these jobs are no runs.
        run_id: of a job without a mark, with the tokens of `job_names`; of a job of Ray with `%j`, its submission id.
        logs: paths in place of those that the job was submitted with, with the tokens of sbatch; of Ray with `%j`.
        inactivity: seconds that the log, or its steps where it has some, may stand still; None for the default.
        restart_stalls: a stall may be restarted where the policy restarts stalls; else it only alerts.
        signals: a signal pack, by its name or absolute path; None for the exporter's.
        policy: the restart policy that the record requests; None for none.
        framework, model: as the record states them.
        checkpoints: where they are, with the tokens of sbatch in its path; None where they are not looked for.
    """

    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignore: bool = False
    run_id: str = DEFAULT_RUN_ID
    logs: tuple[str, ...] = ()
    inactivity: float | None = None
    restart_stalls: bool = False
    signals: str | None = None
    policy: str | None = None
    framework: str | None = None
    model: str | None = None
    checkpoints: CheckpointFolder | None = None

    def fits(self, job: SlurmJob | SubmittedJob) -> bool:
        """Return whether the job is one of those."""
        return all(
            any(fnmatchcase(value, pattern) for pattern in patterns for value in _values(job, name))
            for name, patterns in self.match.items()
        )


@dataclass(frozen=True)
class JobsConfiguration:
    """What `trainwarden slurm watch` or `trainwarden ray watch` does; times in seconds.

    Attributes:
        runs_dir: the folder of the run records.
        log_roots: folders outside of which no log is read.
        mark: write the mark of a run into the comment of a job that has none.
        marked: jobs with a mark are runs where no rule is for them.
        grace: how long a job that its user has marked may take to write a record itself.
        max_jobs: that are watched at the same time.
        max_log_bytes: of the copies of logs in the records of all jobs of a user.
        rules: the first that fits counts.
        default: the rule of marked jobs without another.
    """

    runs_dir: Path
    log_roots: tuple[str, ...] = ("/",)
    mark: bool = False
    marked: bool = True
    grace: float = _GRACE_SECONDS
    max_jobs: int = MAX_JOBS
    max_log_bytes: int = MAX_LOG_BYTES
    rules: Sequence[JobRule] = ()
    default: JobRule = field(default_factory=JobRule)

    def rule_of(self, job: SlurmJob | SubmittedJob) -> JobRule | None:
        """Return the rule of a job that is a run; None for any other."""
        found = next((rule for rule in self.rules if rule.fits(job)), None)
        is_marked = bool(job.job.run_id) if isinstance(job, SubmittedJob) else job.run_id is not None
        if found is None and self.marked and is_marked:
            return self.default
        return None if found is None or found.ignore else found


def ray_configuration(runs: Path) -> JobsConfiguration:
    """Return the configuration of `trainwarden ray` where no file has another."""
    return JobsConfiguration(runs, default=JobRule(run_id=DEFAULT_RAY_RUN_ID))


def read_configuration(file: Path, scheduler: str = "slurm") -> JobsConfiguration:
    """Read the file.

    Args:
        file: its path.
        scheduler: `slurm` or `ray`, whose jobs the rules are for.

    Raises:
        UsageError: it cannot be used, or users other than its owner may write it.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}, expected a file that this user can read") from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{file}: uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}; "
            "expected a file of this user or root that nobody else may write"
        )
    # What Ray has about a job cannot be changed once it was submitted.
    keys = read_yaml(file).mapping(_KEYS if scheduler == "slurm" else [key for key in _KEYS if key != "mark"])
    listed = keys["jobs"].items if "jobs" in keys and keys["jobs"].kind == "list" else ()
    if "jobs" in keys and keys["jobs"].kind not in ("list", "nothing"):
        raise keys["jobs"].wrong("a list of rules")
    return JobsConfiguration(
        runs_dir=Path(keys["runs_dir"].absolute()) if "runs_dir" in keys else runs_dir(),
        log_roots=tuple(map(YamlValue.absolute, keys["log_roots"].scalars())) if "log_roots" in keys else ("/",),
        mark=keys["mark"].boolean() if "mark" in keys else False,
        marked=keys["marked"].boolean() if "marked" in keys else True,
        grace=_seconds(keys["grace"]) if "grace" in keys else _GRACE_SECONDS,
        max_jobs=keys["max_jobs"].count(100_000) if "max_jobs" in keys else MAX_JOBS,
        max_log_bytes=keys["max_log_bytes"].count(2**50) if "max_log_bytes" in keys else MAX_LOG_BYTES,
        rules=tuple(_rule(entry, scheduler) for entry in listed),
        default=JobRule(run_id=_default_run_id(scheduler)),
    )


def signals_of(name: str) -> tuple[str, float | None]:
    """Return a pack's name, or the absolute path of its file, and for how long it lets a log stand still, in seconds.

    Raises:
        PackError: it cannot be read.
    """
    threshold = load_pack(name).inactivity_threshold_seconds
    return name if name in shipped_packs() else str(Path(name).absolute()), threshold


def policy_name(text: str) -> str:
    """Return the name of a policy as it is.

    Raises:
        ValueError: it is none; the message is what was expected.
    """
    if not text or len(text) > 64 or not _POLICY_LETTERS.issuperset(text):
        raise ValueError("a name of 1 to 64 of a-z, 0-9, _ and -")
    return text


def _rule(entry: YamlValue, scheduler: str) -> JobRule:
    keys = entry.mapping(_JOB_KEYS)
    if "match" not in keys:
        raise entry.wrong(f"a rule with match: patterns of {', '.join(_MATCHES[scheduler])}")
    match = _match(keys["match"], scheduler)
    signals, inactivity = None, None
    if "signals" in keys:
        shipped = keys["signals"].scalar() in shipped_packs()
        signals, inactivity = signals_of(keys["signals"].text if shipped else keys["signals"].absolute())
    if "inactivity" in keys:
        inactivity = _seconds(keys["inactivity"])
    restart = keys["restart_stalls"].boolean() if "restart_stalls" in keys else False
    if restart and inactivity is None:
        raise keys["restart_stalls"].wrong("inactivity beside it: how long a log may stand still")
    return JobRule(
        match=match,
        ignore=keys["ignore"].boolean() if "ignore" in keys else False,
        run_id=_run_id(keys["run_id"], scheduler) if "run_id" in keys else _default_run_id(scheduler),
        logs=tuple(map(YamlValue.absolute, keys["logs"].scalars("a list of paths"))) if "logs" in keys else (),
        inactivity=inactivity,
        restart_stalls=restart,
        signals=signals,
        policy=_policy(keys["policy"]) if "policy" in keys else None,
        framework=keys["framework"].scalar() if "framework" in keys else None,
        model=keys["model"].scalar() if "model" in keys else None,
        checkpoints=_checkpoints(keys.get("checkpoints"), keys.get("resume")),
    )


def _match(entry: YamlValue, scheduler: str) -> Mapping[str, tuple[str, ...]]:
    known = _MATCHES[scheduler]
    found = entry.mapping()
    for name in found:
        is_metadata = scheduler == "ray" and name.startswith(_METADATA) and name != _METADATA
        if name not in known and not is_metadata:
            raise found[name].unknown(name, known)
    if not found:
        raise entry.wrong(f"patterns of {', '.join(known)}")
    return {name: _patterns(value) for name, value in found.items()}


def _default_run_id(scheduler: str) -> str:
    return DEFAULT_RUN_ID if scheduler == "slurm" else DEFAULT_RAY_RUN_ID


def _checkpoints(entry: YamlValue | None, resume: YamlValue | None) -> CheckpointFolder | None:
    if entry is None:
        if resume is not None:
            raise resume.wrong("checkpoints beside it: where the checkpoints are")
        return None
    keys = entry.mapping(("path", "trust"))
    if "path" not in keys:
        raise entry.wrong("path: the folder that holds the checkpoints")
    trust = next((each for each in TRUSTS if "trust" not in keys or each == keys["trust"].scalar()), None)
    if trust is None:
        raise keys["trust"].wrong(f"one of {', '.join(TRUSTS)}")
    given = {} if resume is None else resume.mapping(("environment", "arguments"))
    environment = given["environment"].mapping() if "environment" in given else {}
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise value.wrong(f"a name of a variable in place of {name[:40]!r}")
    return CheckpointFolder(
        path=keys["path"].absolute(),
        trust=trust,
        environment={name: value.scalar() for name, value in environment.items()},
        arguments=given["arguments"].scalar() if "arguments" in given else "",
    )


def _values(job: SlurmJob | SubmittedJob, name: str) -> Sequence[str]:
    if isinstance(job, SubmittedJob):
        if name.startswith(_METADATA):
            value = job.submission.metadata.get(name.removeprefix(_METADATA))
            return () if value is None else (str(value),)
        return (str(getattr(job.submission, name)),)
    # A job that waits may name several partitions.
    return job.partition.split(",") if name == "partition" else (str(getattr(job, name)),)


def _patterns(entry: YamlValue) -> tuple[str, ...]:
    return tuple(item.text for item in entry.scalars()) if entry.kind == "list" else (entry.scalar(),)


def _run_id(entry: YamlValue, scheduler: str) -> str:
    try:
        expanded_run_id(entry.scalar(), _SAMPLES[scheduler])
    except InvalidRunId as error:
        raise entry.wrong(f"a run id with tokens such as {_default_run_id(scheduler)}: {error}") from None
    return entry.text


def _policy(entry: YamlValue) -> str:
    try:
        return policy_name(entry.scalar())
    except ValueError as error:
        raise entry.wrong(str(error)) from None


def _seconds(entry: YamlValue) -> float:
    return 0.0 if entry.scalar() == "0" else entry.seconds()
