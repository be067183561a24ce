"""What the local launcher writes into the run record, by its jobs and their generations."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainwarden.classify import classify_exit
from trainwarden.exec.log_file import put_aside
from trainwarden.exec.outcome import status_text
from trainwarden.exec.printed_progress import PENDING_BYTES, PrintedProgress
from trainwarden.exec.record_writer import ExternalRecordWriter
from trainwarden.identity import AttemptKey
from trainwarden.record.folder import LIVENESS_SECONDS, LOG
from trainwarden.record.sentinels import GRACE_SECONDS, announcement_age
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import Thresholds
from trainwarden.stack import launcher
from trainwarden.stack.launcher import Job
from trainwarden.taxonomy import FAILURES
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome

_READ_SECONDS = 1.0


class RunRecorder:
    """Writes one run folder for the launcher. No method raises: on a full disk the record lacks something.

    Args:
        folder: of the run.
        thresholds: for a command that does not use the library; one that does writes its own.
        given: the stall budgets that were given, by phase.
    """

    def __init__(self, folder: Path, thresholds: Thresholds, given: Mapping[str, float] | None = None) -> None:
        self._folder = folder
        self._store = RecordStore(folder)
        self._thresholds = thresholds
        self._given = given or {}
        self._output: _Output | None = None
        self._writer: ExternalRecordWriter | None = None
        self._written = 0.0
        self._read = 0.0

    def started(self, job: Job) -> None:
        """Begin a new attempt, pending; set the log of the one before aside."""
        printed = PrintedProgress()
        self._output = _Output(self._folder / LOG, printed)
        self._writer = ExternalRecordWriter(
            self._store, AttemptKey.parse(job.attempt_key), self._thresholds, printed=printed, given=self._given
        )
        with contextlib.suppress(OSError):
            put_aside(self._folder / LOG, job.generation)
            self._writer.announce()
            self._written = time.monotonic()

    def alive(self, job: Job, *, moving: Callable[[], bool]) -> None:  # noqa: ARG002  # as the launcher calls it
        """Write every 5 s that the command lives, and its steps every second, where no other process writes."""
        if self._writer is None or self._output is None:
            return
        now = time.monotonic()
        changed = False
        if now - self._read >= _READ_SECONDS:
            self._read = now
            self._output.follow()
            changed = self._writer.read_output()
        if not changed and now - self._written < LIVENESS_SECONDS:
            return
        self._written = now
        if self._writer.alone and moving():
            self._writer.alive()

    def restarting(self, job: Job, reason: str, intent: str) -> None:
        """Write for the dying attempt why it is ended."""
        with contextlib.suppress(OSError):
            self._store.announce_restart(job.attempt_key, reason, intent)

    def completed(self, job: Job) -> bool | None:  # noqa: ARG002  # as the launcher calls it
        """Return True if the attempt left its `_complete`, False if a training with the library recorded no end."""
        writer = self._writer
        if writer is None or writer.completed:
            return True if writer else None
        return False if writer.open and not writer.alone else None

    def ended(self, job: Job) -> None:
        """Write how the attempt ended, where the training has not."""
        if self._output is not None:
            self._output.follow()
        if self._writer is not None:
            self._writer.end(self._ending(job))

    def _ending(self, job: Job) -> AttemptOutcome:
        if job.state == launcher.CANCELLED:
            return AttemptOutcome("cancelled", "ended from outside")
        if job.state == launcher.COMPLETED:
            return SUCCEEDED
        if announcement_age(self._folder, job.attempt_key) < GRACE_SECONDS:
            return AttemptOutcome("cancelled", "restart")
        status = job.exit_code if job.exit_code is not None else 1
        code = status if status >= 0 else 128 - status
        failure = classify_exit(status) or FAILURES["nonzero_exit"]
        completed = self._writer is not None and self._writer.completed
        what = "after its training had completed" if completed else "and did not record its end"
        return AttemptOutcome("failed", f"{status_text(status)} {what}", failure, exit_code=code)


class _Output:
    """Follows the log that the command writes itself; of much at once it reads the end."""

    def __init__(self, path: Path, printed: PrintedProgress) -> None:
        self._path = path
        self._printed = printed
        self._offset = 0

    def follow(self) -> None:
        """Read what the command has printed since the last call."""
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if self._offset < size - PENDING_BYTES:
                    self._offset = size - PENDING_BYTES
                    self._printed.add(b"\n")
                file.seek(self._offset)
                data = file.read(PENDING_BYTES)
        except OSError:
            return
        if data:
            self._offset += len(data)
            self._printed.add(data)
