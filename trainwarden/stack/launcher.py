"""The local launcher: the scheduler of `trainwarden up`, for one command on this machine.

It starts the command, keeps its output in the run record, and restarts it on request: at most once per token, only
from the generation that the caller names, and never before the last process of that generation is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, Protocol

from trainwarden.stack import processes
from trainwarden.stack.service import tethered

RUNNING, STOPPING, FAILED, COMPLETED, CANCELLED = "running", "stopping", "failed", "completed", "cancelled"
_TICK_SECONDS = 0.2
_Arguments = ParamSpec("_Arguments")

logger = logging.getLogger("trainwarden")

# A command that ends by one of these signals was stopped by a person.
_CANCELLING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class WrongGeneration(Exception):
    """The caller named another generation than the current one: nothing was done."""


class JobOver(Exception):
    """The job was cancelled or has completed: it is not started again."""


@dataclass(frozen=True)
class Job:
    """The state of a job. Times are Unix seconds; `exit_code` is negative for a signal."""

    job_id: str
    run_id: str
    generation: int = 0
    state: str = RUNNING
    exit_code: int | None = None
    started: float = 0.0
    ended: float | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)

    @property
    def attempt_key(self) -> str:
        """The attempt key in the environment of its processes."""
        return f"local:{self.job_id}:{self.generation}"

    @property
    def over(self) -> bool:
        """Whether no process of it runs."""
        return self.state in (FAILED, COMPLETED, CANCELLED)


class Recorder(Protocol):
    """Called by the launcher on changes of its job; writes the run record."""

    def started(self, job: Job) -> None:
        """A generation is about to start."""

    def alive(self, job: Job, *, moving: Callable[[], bool]) -> None:
        """Called every tick while it runs; `moving()` returns whether some process of it is not stopped."""

    def restarting(self, job: Job, reason: str, intent: str) -> None:
        """The generation is about to be ended for a restart."""

    def completed(self, job: Job) -> bool | None:
        """Return whether the record shows that this generation finished its work; None where it does not show it."""

    def ended(self, job: Job) -> None:
        """The generation has ended; its state shows how."""


class JobLauncher(Protocol):
    """Runs one job, and follows it over its restarts."""

    @property
    def job(self) -> Job:
        """Return the job as it is now."""

    def run(self) -> None:
        """Drive the job until `close()`, in a thread of its own."""

    def close(self) -> None:
        """Let `run()` return once nothing runs; a job that still runs is ended."""


@dataclass(frozen=True)
class _Restart:
    token: str
    reason: str
    intent: str
    environment: Mapping[str, str]


class Launcher:
    """One job. `run()` drives it in the thread that calls it; the other methods may be called from any thread."""

    def __init__(
        self,
        command: Sequence[str],
        run_id: str,
        *,
        environment: Mapping[str, str],
        log: Path,
        recorder: Recorder,
        grace_seconds: float = 5.0,
        notify: Callable[[Job], None] = lambda _job: None,
    ) -> None:
        pid = os.getpid()
        self._command = list(command)
        self._environment = dict(environment)
        self._log = log
        self._recorder = recorder
        self._grace_seconds = grace_seconds
        self._notify = notify
        self._job = Job(f"{pid}-{processes.start_ticks(pid)}", run_id)
        self._lock = threading.Condition()
        self._pending: _Restart | None = None
        self._cancelled = False
        self._closed = False

    @property
    def job(self) -> Job:
        """Return the job as it is now."""
        with self._lock:
            return self._job

    def restart(
        self, token: str, expected_generation: int, *, reason: str, intent: str, environment: Mapping[str, str]
    ) -> Job:
        """Request the next generation; a token used before changes nothing. Raises WrongGeneration or JobOver."""
        with self._lock:
            job = self._job
            if token in job.tokens:
                return job
            if self._cancelled or self._closed or job.state in (COMPLETED, CANCELLED):
                raise JobOver(job.state)
            if job.generation != expected_generation or self._pending is not None:
                raise WrongGeneration(str(job.generation))
            self._job = replace(job, tokens={**job.tokens, token: job.generation + 1})
            self._pending = _Restart(token, reason, intent, dict(environment))
            self._lock.notify_all()
            return self._job

    def cancel(self) -> None:
        """End the job for good, as a person would."""
        with self._lock:
            self._cancelled = True
            self._pending = None
            self._lock.notify_all()

    def close(self) -> None:
        """Let `run()` return once nothing runs; a job that still runs is cancelled."""
        with self._lock:
            self._closed = True
            self._cancelled = self._cancelled or not self._job.over
            self._pending = None
            self._lock.notify_all()

    def run(self) -> None:
        """Start the job and serve it until `close()`. Call it in a thread that lives as long as the job."""
        environment: Mapping[str, str] = {}
        while True:
            self._run_generation(environment)
            with self._lock:
                self._lock.wait_for(lambda: self._pending is not None or self._closed)
                if self._pending is None:
                    return
                environment = self._pending.environment
                self._pending = None
                self._job = replace(
                    self._job, generation=self._job.generation + 1, state=RUNNING, exit_code=None, ended=None
                )

    def _run_generation(self, extra: Mapping[str, str]) -> None:
        self._change(state=RUNNING, started=time.time(), exit_code=None, ended=None)
        self._call(self._recorder.started, self.job)
        try:
            child = self._spawn(extra)
        except OSError as error:
            with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
                log.write(f"trainwarden: cannot run {self._command[0]!r}: {error.strerror}\n")
            code = 126 if isinstance(error, PermissionError) else 127
            self._end(code, reason=None)
            return
        reason = self._watch(child)
        processes.end_all(self._find, self._grace_seconds)
        self._end(child.wait(), reason)

    def _spawn(self, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
        environment = {
            "PYTHONUNBUFFERED": "1",
            **self._environment,
            **extra,
            "TRAINWARDEN_ATTEMPT_KEY": self.job.attempt_key,
        }
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            return subprocess.Popen(
                tethered(self._command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def _watch(self, child: subprocess.Popen[bytes]) -> str | None:
        """Wait until the command ends, or is to be ended; return why it was ended: restart, cancel or None."""
        while child.poll() is None:
            with self._lock:
                self._lock.wait_for(lambda: self._pending is not None or self._cancelled, _TICK_SECONDS)
                pending, cancelled = self._pending, self._cancelled
            if cancelled:
                self._change(state=STOPPING)
                return "cancel"
            if pending:
                self._call(self._recorder.restarting, self.job, pending.reason, pending.intent)
                self._change(state=STOPPING)
                return "restart"
            self._call(self._recorder.alive, self.job, moving=self._moves)
        return None

    def _moves(self) -> bool:
        return any(process.moving for process in self._find())

    def _find(self) -> list[processes.AttemptProcess]:
        return processes.of_attempt(self.job.attempt_key)

    def _end(self, code: int, reason: str | None) -> None:
        was_signalled = -code in _CANCELLING or code - 128 in _CANCELLING
        completed = self._completed()
        # A command that fails by itself after its training has completed, as in an export, has failed.
        if completed and (code == 0 or reason or was_signalled):
            state = COMPLETED
        elif reason == "restart":
            state = FAILED
        elif reason == "cancel" or was_signalled:
            state = CANCELLED
        else:
            state = COMPLETED if code == 0 and completed is None else FAILED
        self._change(state=state, exit_code=code, ended=time.time(), quiet=True)
        self._call(self._recorder.ended, self.job)
        if state != FAILED:
            self._forget_restart()
        self._call(self._notify, self.job)

    def _completed(self) -> bool | None:
        try:
            return self._recorder.completed(self.job)
        except Exception:
            logger.exception("the launcher could not read how the run ended")
            return None

    def _forget_restart(self) -> None:
        """Drop a restart that was requested while the job completed or was cancelled."""
        with self._lock:
            self._pending = None
            done = {token: number for token, number in self._job.tokens.items() if number <= self._job.generation}
            self._job = replace(self._job, tokens=done)

    def _change(self, *, quiet: bool = False, **changes: object) -> None:
        with self._lock:
            self._job = replace(self._job, **changes)  # type: ignore[arg-type]  # the callers above name fields of Job
            job = self._job
        if not quiet:
            self._call(self._notify, job)

    @staticmethod
    def _call(listener: Callable[_Arguments, None], *what: _Arguments.args, **more: _Arguments.kwargs) -> None:
        """Call the recorder; log what it raises: an exception would end this thread, and with it the command."""
        try:
            listener(*what, **more)
        except Exception:
            logger.exception("the launcher could not pass on what happened")
