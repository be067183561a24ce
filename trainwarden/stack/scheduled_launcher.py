"""One command as a job of a scheduler, followed over all its starts, for `trainwarden up`."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from trainwarden.record.sentinels import announced_restart
from trainwarden.stack.launcher import CANCELLED, COMPLETED, FAILED, RUNNING, STOPPING, Job, Recorder

PENDING, SUCCEEDED, STOPPED = "pending", "succeeded", "stopped"
_TERMINATED = 143  # SIGTERM, as a shell shows it


@dataclass(frozen=True)
class ScheduledCommand:
    """What is to run as a job, and who is to learn of it.

    Attributes:
        command: program and arguments.
        run_id: of the run.
        folder: the working directory.
        environment: of the command, as far as the scheduler lets it have that.
        log: takes its output.
        recorder: writes the run record.
        notify: is called when the job has changed.
    """

    command: Sequence[str]
    run_id: str
    folder: Path
    environment: Mapping[str, str]
    log: Path
    recorder: Recorder
    notify: Callable[[Job], None] = lambda _job: None


class SchedulerCluster(Protocol):
    """A cluster that can run the command."""

    def launcher(self, what: ScheduledCommand) -> ScheduledLauncher:
        """Return what submits and follows the command there."""

    def flags(self, run_id: str, state_dir: Path) -> list[str]:
        """Return the remediator's flags for the run; write the files that they name into the state folder."""


class ScheduledLauncher(ABC):
    """Submits the command, and follows what the remediator makes of its job. `run()` drives it, as in `Launcher`."""

    tick_seconds = 0.3
    end_seconds = 30.0

    def __init__(self, what: ScheduledCommand, job: Job) -> None:
        self.what = what
        self._job = job
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def job(self) -> Job:
        """Return the newest start as it is now."""
        with self._lock:
            return self._job

    @property
    @abstractmethod
    def keys(self) -> str:
        """Return what the attempt keys of all starts begin with."""

    @abstractmethod
    def submit(self) -> None:
        """Submit the command. Raises ServiceFailed."""

    @abstractmethod
    def look(self) -> None:
        """Read the job, and take over what is new."""

    @abstractmethod
    def stop(self) -> bool:
        """Let the scheduler end the job; return whether it has understood."""

    def close(self) -> None:
        """Let `run()` return once nothing runs; a job that still runs is stopped."""
        self._closed.set()

    def run(self) -> None:
        """Follow the job until `close()`."""
        while not self._closed.wait(self.tick_seconds):
            self.look()
        end = time.monotonic() + self.end_seconds
        asked = False
        while not self.job.over and time.monotonic() < end:
            if not asked:
                asked = self.stop()
            time.sleep(self.tick_seconds)
            self.look()

    def begin(self, **changes: Any) -> None:
        """Take over another start; it is running, or waits to."""
        self.change(state=RUNNING, exit_code=None, ended=None, **changes)
        self.what.recorder.started(self.job)

    def alive(self) -> None:
        """Take over that the job runs."""
        job = self.job
        self.what.recorder.alive(job, moving=lambda: True)
        if job.state == RUNNING and self._restarts(job):
            self.change(state=STOPPING, tokens={"restart": job.generation + 1}, notify=True)

    def end(self, state: str, exit_code: int | None, ended: float | None) -> None:
        """Take over the end of this start.

        Args:
            state: SUCCEEDED, FAILED or STOPPED, as the scheduler states it.
            exit_code: negative for a signal.
            ended: Unix seconds; now if None.
        """
        over = self.ending(state, exit_code, ended)
        self.change(state=over.state, exit_code=over.exit_code, ended=over.ended, tokens=over.tokens)
        self.what.recorder.ended(over)
        self.what.notify(over)

    def ending(self, state: str, exit_code: int | None, ended: float | None) -> Job:
        """Return the job as it is over; see `end`."""
        job = self.job
        completed, restarts = self.what.recorder.completed(job), self._restarts(job)
        if state == STOPPED:
            how = COMPLETED if completed else FAILED if restarts else CANCELLED
        else:
            how = COMPLETED if state == SUCCEEDED and completed is not False else FAILED
        code = _TERMINATED if state == STOPPED else exit_code or (0 if how == COMPLETED else 1)
        tokens = {"restart": job.generation + 1} if restarts and how == FAILED else {}
        return replace(job, state=how, exit_code=code, ended=ended or time.time(), tokens=tokens)

    def change(self, *, notify: bool = False, **changes: Any) -> None:
        """Change fields of the job."""
        with self._lock:
            self._job = replace(self._job, **changes)
            job = self._job
        if notify:
            self.what.notify(job)

    def _restarts(self, job: Job) -> bool:
        return announced_restart(self.what.log.parents[1], job.attempt_key) is not None
