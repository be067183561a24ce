"""Driver `slurm`: the command line tools, because they are there on every cluster and need no key of their own.

An answer of scontrol is never the truth: it may fail and have taken effect, or succeed and have done nothing. What
counts is the next `squeue`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden_remediator.drivers.driver import Absent, Answer, Job, Outcome, Reading, Standing, Subject
from trainwarden_remediator.drivers.squeue import QueueJob, read_queue
from trainwarden_remediator.errors import ConfigError, Unreachable
from trainwarden_remediator.incident import clean
from trainwarden_remediator.unknown import Unknown

_ID = re.compile(r"\d+(_\d+)?", re.ASCII)
# These variables are options of the tools in disguise, or tell of a job that we happen to run in.
_FOREIGN = ("SBATCH_", "SCANCEL_", "SQUEUE_", "SLURM_", "SCONTROL_", "SACCT_")
_MAX_OUTPUT = 256 << 20
# Only these say that the controller understood the request and will not do it.
_REFUSALS = re.compile(r"disabled|permission denied|invalid job id|not supported|invalid user", re.IGNORECASE)


@dataclass(frozen=True)
class Programs:
    """Absolute paths."""

    squeue: str
    scontrol: str


def find_programs(folder: Path | None) -> Programs:
    """In `folder`, else on PATH. Raises ConfigError naming what is missing."""
    where = None if folder is None else str(folder)
    found = {name: shutil.which(name, path=where) for name in ("squeue", "scontrol")}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        place = f"in {folder}" if folder else "on PATH"
        raise ConfigError([f"--driver slurm: {' and '.join(missing)} not found {place}; see --slurm-bin-dir"])
    return Programs(*(str(Path(str(path)).absolute()) for path in found.values()))


class SlurmDriver:
    """Ends attempts by `requeuehold`, which keeps the job's id and holds its next start, and starts them by `release`.

    Touches only jobs of `users` (uids) that carry the run's mark in their comment.
    """

    name = "slurm"
    two_phase = True

    def __init__(self, programs: Programs, users: Collection[int], timeout: float, interval: float) -> None:
        """`interval`: how many seconds a snapshot of the queue may serve where nobody asks for a fresh one."""
        self._interval = interval
        self._programs = programs
        self._users = frozenset(users)
        self._timeout = timeout
        self._environment = clean_environment(os.environ)
        self._queue: dict[str, QueueJob] | Unknown | None = None
        self._read_at = 0.0

    def refresh(self) -> None:
        """Forget the snapshot."""
        self._queue = None

    def job(self, job_id: str) -> Reading:
        """Read one job out of a snapshot that all readings share: `squeue` lists the whole cluster."""
        if self._queue is None or time.monotonic() - self._read_at > self._interval:
            self._queue = self._read_queue()
            self._read_at = time.monotonic()
        if isinstance(self._queue, Unknown):
            return self._queue
        found = self._queue.get(job_id)
        return Absent() if found is None else self._as_job(found)

    def prepare(self, subject: Subject) -> Answer:
        """`requeuehold`, with Incomplete unless the job has ended: it must not revive what ends by itself meanwhile."""
        reading = self.job(subject.job_id)
        found = self._queue.get(subject.job_id) if isinstance(self._queue, dict) else None
        if found is None or found.target is None or not isinstance(reading, Job) or reading.refusal is not None:
            return Answer(Outcome.UNCLEAR, "nothing was called: the job could not be read")
        ended = reading.standing is Standing.FAILED
        if not ended and reading.standing is not Standing.RUNNING:
            return Answer(Outcome.UNCLEAR, f"nothing was called: the job is {reading.state}")
        return self._scontrol("requeuehold", *([] if ended else ["Incomplete"]), found.target)

    def commit(self, subject: Subject) -> Answer:
        """`release`; on a job that runs or waits already it changes nothing."""
        self.job(subject.job_id)
        found = self._queue.get(subject.job_id) if isinstance(self._queue, dict) else None
        if found is None or found.target is None:
            return Answer(Outcome.UNCLEAR, "nothing was called: the job could not be read")
        return self._scontrol("release", found.target)

    def _as_job(self, found: QueueJob) -> Job:
        return Job(
            job_id=found.job_id,
            run_id=found.run_id,
            generation=found.restarts,
            standing=found.standing,
            state=clean("+".join(sorted(found.states)), 80),
            refusal=self._refusal(found),
        )

    def _refusal(self, found: QueueJob) -> str | None:
        if found.user_id not in self._users:
            return f"job {found.job_id} belongs to uid {found.user_id}; see --slurm-allow-user"
        if found.heterogeneous:
            return f"job {found.job_id} is heterogeneous: its parts cannot be requeued one by one"
        if found.target is None:
            return f"job {found.job_id} stands for several array tasks"
        if found.requeue is False:
            return f"job {found.job_id} was submitted with --no-requeue"
        if found.held and found.held_by_admin:
            return f"job {found.job_id} is held by an administrator"
        return None

    def _read_queue(self) -> dict[str, QueueJob] | Unknown:
        argv = [self._programs.squeue, "--json", "--states=all"]
        try:
            done = self._run(argv)
        except (OSError, subprocess.SubprocessError) as error:
            return Unknown(f"squeue: {type(error).__name__}")
        if done.returncode != 0:
            return Unknown(f"squeue ended with status {done.returncode}: {_said(done)}")
        try:
            # Names and comments are any user's bytes; one that is no UTF-8 must not hide every other job.
            return read_queue(json.loads(done.stdout.decode("utf-8", "replace")))
        except (ValueError, RecursionError, Unreachable) as error:
            return Unknown(f"squeue: {clean(error)}")

    def _scontrol(self, *words: str) -> Answer:
        if not _ID.fullmatch(words[-1]):
            return Answer(Outcome.REFUSED, f"{words[-1]!r} is no job id")
        argv = [self._programs.scontrol, *words]
        called = shlex.join(argv)
        try:
            done = self._run(argv)
        except subprocess.TimeoutExpired:
            return Answer(Outcome.UNCLEAR, f"{called}: no answer within {self._timeout:g} s")
        except (OSError, subprocess.SubprocessError) as error:
            return Answer(Outcome.UNCLEAR, f"{called}: {type(error).__name__}")
        detail = f"{called}: status {done.returncode}" + (f", {said}" if (said := _said(done)) else "")
        if done.returncode == 0:
            return Answer(Outcome.ACCEPTED, detail)
        return Answer(Outcome.REFUSED if _REFUSALS.search(said) else Outcome.UNCLEAR, detail)

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=self._timeout,
            env=self._environment,
            cwd="/",
            start_new_session=True,
            check=False,
        )
        if len(done.stdout) > _MAX_OUTPUT:
            raise subprocess.SubprocessError
        return done


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the tools may see of our environment."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_FOREIGN) and name != "LANGUAGE" and not name.startswith("LC_")
    }
    if "SLURM_CONF" in environment:
        kept["SLURM_CONF"] = environment["SLURM_CONF"]
    return {**kept, "LC_ALL": "C"}


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return clean(" ".join((done.stderr + b" " + done.stdout[:200]).decode("utf-8", "replace").split()))
