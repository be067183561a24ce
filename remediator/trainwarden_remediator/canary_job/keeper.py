"""Keeps the canary's one job in SLURM: submits it where there is none, and leaves its healing to the remediator."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn, Protocol

from trainwarden.clients.slurm.client import SlurmClient, SlurmError, UnreadableRecord
from trainwarden.clients.slurm.jobs import ENDED_STATES, RUN_MARK, SlurmJob
from trainwarden.record.folder import replace_file
from trainwarden_remediator.canary_job.canary_job import RUN_ID
from trainwarden_remediator.errors import ConfigError, Unknown

log = logging.getLogger(__name__)

# How such a job ends for which the remediator gives the next start.
_FAILED = frozenset({"node_fail", "out_of_memory", "boot_fail", "failed"})
# After a submission without an answer: until then SLURM may still accept it.
DOUBT_SECONDS = 120.0
LOOK_SECONDS = 30.0


class CanaryJobs(Protocol):
    """The jobs of the canary in a scheduler."""

    def jobs(self) -> Sequence[SlurmJob] | Unknown:
        """Return those that are marked with the canary's run and belong to this user, the ended ones included."""

    def submit(self) -> str | None:
        """Submit one; return its id, None where it was not accepted or that is unknown."""

    def cancel(self, job: SlurmJob) -> None:
        """Remove one that waits."""


@dataclass(frozen=True)
class KeeperState:
    """What outlives the keeper, Unix seconds; None: not yet, or not now.

    Attributes:
        submitted: when it last submitted a job.
        seen: when that job was first listed.
        down_since: since when none is listed that lives.
    """

    submitted: float | None = None
    seen: float | None = None
    down_since: float | None = None


class Keeper:
    """Decides, look by look, whether the canary's job is to be submitted.

    Args:
        jobs: of the scheduler.
        file: keeps the state.
        resubmit_after: seconds for which a job that has failed is left to the remediator.
        clock: Unix seconds.
    """

    def __init__(
        self, jobs: CanaryJobs, file: Path, resubmit_after: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._jobs = jobs
        self._file = file
        self._resubmit_after = resubmit_after
        self._clock = clock
        self._state = _read(file)

    def look(self) -> str:
        """Look once; return what was found and done, for the log."""
        found = self._jobs.jobs()
        if isinstance(found, Unknown):
            return f"unknown: {found.reason}"
        by_age = sorted(found, key=lambda job: int(job.job_id))
        live = [job for job in by_age if job.state not in ENDED_STATES]
        now, state = self._clock(), self._state
        if live:
            self._keep(replace(state, seen=state.seen or now, down_since=None))
            return self._leave_one(live)
        if state.seen is None and _age(state.submitted, now) < DOUBT_SECONDS:
            return "waits for SLURM to show the job that was submitted"
        if by_age[-1].state in _FAILED if by_age else state.seen is not None:
            self._keep(replace(state, down_since=state.down_since or now))
            if _age(self._state.down_since, now) < self._resubmit_after:
                return "its job has failed or is gone: the remediator is to start it again"
        # Written down first: what follows may take effect although it is not answered.
        self._keep(KeeperState(submitted=now))
        job_id = self._jobs.submit()
        return f"submitted job {job_id}" if job_id else "no job was accepted, as far as is known"

    def _leave_one(self, live: Sequence[SlurmJob]) -> str:
        kept, *others = live
        waiting = [job for job in others if job.state == "pending"]
        for job in waiting:
            self._jobs.cancel(job)
        also = f", and removed {', '.join(job.job_id for job in waiting)}, which waited beside it" if waiting else ""
        return f"job {kept.job_id} is {kept.state}{also}"

    def _keep(self, state: KeeperState) -> None:
        if state != self._state:
            replace_file(self._file, json.dumps(asdict(state)).encode())
            self._state = state


class SlurmCanary:
    """The canary's jobs in SLURM: of this user, by the mark in their comment.

    Args:
        client: with squeue, sbatch and scancel.
        command: what the job runs.
        folder: of the run's record, for the job's output.
        options: more options of sbatch, such as `--partition=cpu`.
    """

    def __init__(self, client: SlurmClient, command: Sequence[str], folder: Path, options: Sequence[str] = ()) -> None:
        self._client = client
        self._folder = folder
        self._script = f"#!/bin/sh\nexec {shlex.join(command)}\n"
        self._options = (
            # SLURM starts no second job of this name and user beside one that runs.
            *(f"--job-name={RUN_ID}", "--dependency=singleton", f"--comment={RUN_MARK}{RUN_ID}", "--requeue"),
            *("--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=256M", "--open-mode=append", "--chdir=/"),
            f"--output={folder}/job.log",
            *options,
        )

    def jobs(self) -> Sequence[SlurmJob] | Unknown:
        """Return the canary's jobs, of a complete list alone."""
        found = []
        try:
            for job in self._client.jobs():
                if isinstance(job, UnreadableRecord):
                    return Unknown(f"a job is unreadable: {job.problem}")
                if job.run_id == RUN_ID and job.user_id == os.getuid():
                    found.append(job)
        except SlurmError as error:
            return Unknown(str(error))
        return found

    def submit(self) -> str | None:
        """Submit the job."""
        self._folder.mkdir(parents=True, exist_ok=True)
        done = self._client.submit(self._script, *self._options)
        log.log(logging.INFO if done.job_id else logging.ERROR, "%s", done.detail)
        return done.job_id

    def cancel(self, job: SlurmJob) -> None:
        """Remove a job, if it still waits."""
        if job.target is not None:
            log.warning("%s", self._client.cancel_pending(job.target).detail)


def command_of_training(runs_dir: Path, every: float, step_seconds: float) -> list[str]:
    """Return the command of the canary's job."""
    flags = [f"--runs-dir={runs_dir}"]
    own = ["--train", f"--every={every:g}", f"--step-interval={step_seconds:g}"]
    return [sys.executable, "-m", "trainwarden_remediator", *flags, "canary", *own]


def keep(jobs: CanaryJobs, folder: Path, resubmit_after: float) -> NoReturn:
    """Look every half a minute, for ever; raise ConfigError if another keeper uses the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError([f"{folder}: another canary is kept with this folder"]) from None
        keeper, last = Keeper(jobs, folder / "state.json", resubmit_after), ""
        while True:
            found = keeper.look()
            if found != last:
                log.info("%s", found)
            last = found
            time.sleep(LOOK_SECONDS)


def _age(moment: float | None, now: float) -> float:
    """Return the seconds since a moment; a clock that was set back makes none longer than it was."""
    return float("inf") if moment is None else max(0.0, now - moment)


def _read(file: Path) -> KeeperState:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return KeeperState(**{name: None if value is None else float(value) for name, value in values.items()})
    except FileNotFoundError:
        return KeeperState()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError([f"{file}: {error}"]) from None
