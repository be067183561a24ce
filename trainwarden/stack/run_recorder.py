"""What the local launcher writes into the run record: what a witness says, told of jobs and their generations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from trainwarden.classify import classify_exit
from trainwarden.identity import AttemptKey
from trainwarden.record.folder import LOG
from trainwarden.record.sentinels import announce_restart, announced_restart
from trainwarden.record.thresholds import Thresholds
from trainwarden.stack import launcher
from trainwarden.stack.launcher import Job
from trainwarden.taxonomy import FAILURES
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome
from trainwarden.wrapper.log_file import put_aside
from trainwarden.wrapper.verdict import how
from trainwarden.wrapper.witness import Witness

_LIVENESS_SECONDS = 5.0


class RunRecorder:
    """The launcher's pen on one run folder. Its writing never stops the job: a full disk costs words, not work.

    `thresholds` are for a command that does not use the library; the others bring their own.
    """

    def __init__(self, folder: Path, thresholds: Thresholds) -> None:
        self._folder = folder
        self._thresholds = thresholds
        self._witness: Witness | None = None
        self._written = 0.0

    def started(self, job: Job) -> None:
        """A new attempt is pending; the log of the one before is put aside."""
        self._witness = Witness(self._folder, AttemptKey.parse(job.attempt_key), self._thresholds)
        with contextlib.suppress(OSError):
            put_aside(self._folder / LOG, job.generation)
            self._witness.announce()
            self._written = time.monotonic()

    def alive(self, job: Job, *, moving: Callable[[], bool]) -> None:  # noqa: ARG002  # as the launcher calls it
        """Where nothing but the launcher writes, it says that the command lives."""
        if self._witness is None or time.monotonic() - self._written < _LIVENESS_SECONDS:
            return
        self._written = time.monotonic()
        if self._witness.alone and moving():
            self._witness.alive()

    def restarting(self, job: Job, reason: str, intent: str) -> None:
        """Let the dying attempt know why."""
        with contextlib.suppress(OSError):
            announce_restart(self._folder, job.attempt_key, reason, intent)

    def completed(self, job: Job) -> bool | None:  # noqa: ARG002  # as the launcher calls it
        """True if the attempt left its `_complete`; False if a training that uses the library ended without a word."""
        witness = self._witness
        if witness is None or witness.completed:
            return True if witness else None
        return False if witness.open and not witness.alone else None

    def ended(self, job: Job) -> None:
        """Say how the attempt ended where it did not say so itself."""
        if self._witness is not None:
            self._witness.end(self._ending(job))

    def _ending(self, job: Job) -> AttemptOutcome:
        if job.state == launcher.CANCELLED:
            return AttemptOutcome("cancelled", "ended from outside")
        if job.state == launcher.COMPLETED:
            return SUCCEEDED
        if announced_restart(self._folder, job.attempt_key):
            return AttemptOutcome("cancelled", "restart")
        status = job.exit_code if job.exit_code is not None else 1
        code = status if status >= 0 else 128 - status
        failure = classify_exit(status) or FAILURES["nonzero_exit"]
        return AttemptOutcome("failed", f"{how(status)} and left no word", failure, exit_code=code)
