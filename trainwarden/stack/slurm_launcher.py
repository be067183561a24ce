"""The command of `trainwarden up` as a batch job of a SLURM cluster, followed over all its requeues."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.clients.slurm.client import CommandsMissing, SlurmClient, SlurmError, find_commands
from trainwarden.clients.slurm.jobs import ENDED_STATES, SlurmJob
from trainwarden.errors import UsageError
from trainwarden.stack.launcher import FAILED, Job
from trainwarden.stack.scheduled_launcher import STOPPED, SUCCEEDED, ScheduledCommand, ScheduledLauncher
from trainwarden.stack.service import ServiceFailed

logger = logging.getLogger("trainwarden")

_ANSWER_SECONDS = 20.0
_COMMANDS = ("squeue", "scontrol", "sbatch", "scancel")
# Options in disguise, and what another job that this process runs in has set.
_OF_SLURM = re.compile(r"(SLURM|SBATCH|SRUN|SALLOC)_.*")
_OPTION = re.compile(r"--([a-z][a-z-]*)(=.*)?", re.DOTALL)
# Each says where the job is, what runs, or how it comes back.
_OWN_OPTIONS = frozenset(
    {"array", "chdir", "comment", "deadline", "error", "export", "export-file", "hold", "input", "no-requeue"}
    | {"open-mode", "output", "parsable", "requeue", "test-only", "wait", "wrap"}
)
_NO_SUCH_JOB = "invalid job id"


@dataclass(frozen=True)
class SlurmCluster:
    """A SLURM cluster: the folder of its commands, PATH if None, and more options of sbatch."""

    bin_dir: Path | None = None
    options: Sequence[str] = ()

    def client(self) -> SlurmClient:
        """Return a client of it. Raises UsageError."""
        try:
            return SlurmClient(find_commands(self.bin_dir, _COMMANDS), _ANSWER_SECONDS)
        except CommandsMissing as error:
            raise UsageError(f"--driver slurm: {error}; see --slurm-bin-dir") from None

    def check(self) -> None:
        """Check the options, and whether the controller answers. Raises UsageError."""
        for option in self.options:
            found = _OPTION.fullmatch(option)
            if found is None:
                raise UsageError(f"--sbatch-option {option}: expected --NAME or --NAME=VALUE, as in --gpus=8")
            if found[1] in _OWN_OPTIONS:
                raise UsageError(f"--sbatch-option {option}: --{found[1]} is set by trainwarden up itself")
        try:
            self.client().boot_time()
        except SlurmError as error:
            raise UsageError(f"--driver slurm: {error}") from None

    def launcher(self, what: ScheduledCommand) -> ScheduledLauncher:
        """Return what submits and follows the command there."""
        return SlurmLauncher(what, self.client(), self.options)

    def flags(self, run_id: str, state_dir: Path) -> list[str]:  # noqa: ARG002  # of every cluster
        """Return the remediator's flags."""
        folder = [f"--slurm-bin-dir={self.bin_dir.absolute()}"] if self.bin_dir is not None else []
        return ["--driver=slurm", *folder]


@dataclass(frozen=True)
class SlurmAttempt(Job):
    """The job; `generation` counts its requeues."""

    @property
    def attempt_key(self) -> str:
        """The attempt key that its processes find by themselves."""
        return f"slurm:{self.job_id}:{self.generation}"


class SlurmLauncher(ScheduledLauncher):
    """A batch job of SLURM, which keeps its id, its script and its environment over requeues."""

    tick_seconds = 1.0
    end_seconds = 60.0  # KillWait is 30 s where it is not set

    def __init__(self, what: ScheduledCommand, client: SlurmClient, options: Sequence[str] = ()) -> None:
        super().__init__(what, SlurmAttempt("0", what.run_id))
        self._client = client
        self._options = options
        self._waits = True

    @property
    def keys(self) -> str:
        """Return what the attempt keys of all starts begin with."""
        return f"slurm:{self.job.job_id}:"

    def submit(self) -> None:
        """Submit the command held, open the record of its first attempt, release it. Raises ServiceFailed."""
        what = self.what
        what.log.parent.mkdir(parents=True, exist_ok=True)
        words = shlex.join([shutil.which(what.command[0]) or what.command[0], *what.command[1:]])
        made = self._client.submit(
            f"#!/bin/sh\nexec {words}\n",
            f"--job-name={what.run_id}",
            *self._options,
            "--hold",
            "--requeue",
            "--export=ALL",
            f"--comment=trainwarden:{what.run_id}",
            f"--chdir={what.folder}",
            f"--output={_as_it_is(what.log)}",
            "--open-mode=append",
            environment={
                "PYTHONUNBUFFERED": "1",
                **{name: value for name, value in what.environment.items() if not _OF_SLURM.fullmatch(name)},
                **{name: what.environment[name] for name in ("SLURM_CONF",) if name in what.environment},
            },
        )
        if made.job_id is None:
            raise ServiceFailed(f"SLURM: {made.detail}")
        self.change(job_id=made.job_id)
        what.recorder.started(self.job)
        released = self._client.control("release", made.job_id)
        if not released.accepted:
            self._client.cancel(made.job_id)
            raise ServiceFailed(f"SLURM: {released.detail}; the job was cancelled")

    def stop(self) -> bool:
        """Let SLURM end the job, wherever it is."""
        return self._client.cancel(self.job.job_id).accepted

    def look(self) -> None:
        """Read the job; a higher restart count is another start."""
        job_id = self.job.job_id
        try:
            records = [each for each in self._client.jobs(job_id) if isinstance(each, SlurmJob)]
        except SlurmError as error:
            if _NO_SUCH_JOB not in error.message.lower():
                logger.debug("SLURM gives no answer: %s", error)
                return
            records = []
        found = next((each for each in records if each.job_id == job_id), None)
        if found is not None:
            self._take(found)
        elif not self.job.over:
            self.end(STOPPED, None, None)

    def _take(self, found: SlurmJob) -> None:
        if found.state in ("completing", "other") or found.restarts is None:
            return  # the end of this start is not over
        if found.restarts > self.job.generation:
            self._requeued(found)
        if self.job.over:
            return
        if found.state in ENDED_STATES:
            state = {"completed": SUCCEEDED, "cancelled": STOPPED}.get(found.state, FAILED)
            code = -found.exit_signal if found.exit_signal else found.exit_code
            self.end(state, code, found.ended)
        elif found.state != "pending":
            if self._waits:
                self._waits = False
                self.change(started=found.started or time.time(), notify=True)
            self.alive()

    def _requeued(self, found: SlurmJob) -> None:
        """Take over the end of one start and the wait for the next as one change: the job as such is not over."""
        if not self.job.over:
            over = self.ending(STOPPED, None, None)
            self.what.recorder.ended(over)
            self.what.notify(over)
        self._waits = True
        self.begin(generation=found.restarts)


def _as_it_is(path: Path) -> str:
    """Return a path in which SLURM replaces nothing. Raises ServiceFailed."""
    if "\\" in str(path):
        raise ServiceFailed(f"--runs-dir: SLURM takes no path with a backslash: {path}")
    return str(path).replace("%", "%%")
