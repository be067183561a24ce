"""What one who runs a training, and is not it, writes into the run's record.

The record belongs to the training. A witness says only what the training cannot: that an attempt is about to begin,
that it died without a word, and, for a command that does not use the library at all, that it lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from trainwarden.environment import read_wishes
from trainwarden.identity import AttemptKey, host_name, world_size
from trainwarden.record.clock import to_iso
from trainwarden.record.document import Document, read_document
from trainwarden.record.files import Metadata, read_metadata
from trainwarden.record.folder import METADATA, encode
from trainwarden.record.locks import writing
from trainwarden.record.place import replace
from trainwarden.record.sentinels import (
    MAX_MESSAGE,
    Sentinel,
    Teller,
    current_completion,
    current_error,
    record_completion,
    record_failure,
    shorten,
)
from trainwarden.record.thresholds import Thresholds
from trainwarden.taxonomy import FAILURES
from trainwarden.training.attempt import begin
from trainwarden.training.copies import Copy
from trainwarden.training.outcome import AttemptOutcome

# What an attempt says of itself at its end, and of its copy: no longer true of the next.
_OF_AN_ATTEMPT = ("end_time", "reason", "s3", "write_errors", "signals", "log_path", "policy")


class Witness:
    """The pen of one process on the run folder of one attempt; `pid` in the metadata says whether it is the only one.

    `announce` raises OSError. After that its writing never stops anything: a full disk costs words, not work.

    Args:
        folder: of the run.
        key: of the attempt.
        thresholds: for a command that does not use the library; the others bring their own.
        pid: of the process that stands for the command in the record; this one if None.
        copy: of the record elsewhere, if there is one.
    """

    def __init__(
        self,
        folder: Path,
        key: AttemptKey,
        thresholds: Thresholds,
        *,
        pid: int | None = None,
        copy: Copy | None = None,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._folder = folder
        self._key = key
        self._thresholds = thresholds
        self._copy = copy
        self._start = time.time()
        self._said: dict[str, Any] = {}

    def announce(self) -> int:
        """Begin the attempt, pending; returns its number.

        Raises:
            OSError: the folder cannot be written.
        """
        now = self._start = time.time()
        self._folder.mkdir(parents=True, exist_ok=True)
        values = self._values()
        beginning = begin(self._folder, self._key, now)
        number, key = beginning.this.attempt, str(self._key)
        known = {attempt.attempt for attempt in beginning.attempts}
        attempts = [each for each in _objects(values.get("attempts")) if each.get("attempt") in known - {number}]
        for name in _OF_AN_ATTEMPT:
            values.pop(name, None)
        values.update(
            run_id=self._folder.name,
            version=1,
            status="pending",
            phase="init",
            last_update=to_iso(now),
            attempt=number,
            attempt_key=key,
            attempts=[*attempts, {"attempt": number, "key": key, "start_time": to_iso(now)}],
            attempt_start_time=to_iso(now),
            phase_time=to_iso(now),
            job_id=self._key.job_id,
            scheduler=self._key.scheduler,
            world_size=world_size(),
            thresholds=self._thresholds.as_json(),
            host=host_name(),
            pid=self._pid or None,
            **read_wishes(),
        )
        values.setdefault("start_time", to_iso(now))
        self._write(values)
        return number

    @property
    def alone(self) -> bool:
        """Whether the witness is the only one who has written about this attempt."""
        metadata = self._metadata()
        return metadata is not None and metadata.pid == self._pid

    @property
    def open(self) -> bool:
        """Whether the record does not know yet how the attempt ended."""
        metadata = self._metadata()
        return metadata is not None and metadata.status in ("running", "pending")

    @property
    def completed(self) -> bool:
        """Whether the attempt left its `_complete`."""
        return isinstance(current_completion(self._folder, str(self._key), self._start), Sentinel)

    def alive(self) -> None:
        """Where nobody else writes, say that the command lives: idle, since it shows no steps."""
        with contextlib.suppress(OSError), writing(str(self._folder)):
            metadata = read_metadata(self._folder)
            if metadata is None and self._said:
                # Somebody removed the folder under the run.
                self._folder.mkdir(parents=True, exist_ok=True)
                self._write(self._said)
            elif not self.alone or not self.open:
                return
            now = to_iso(time.time())
            changes = {"status": "running", "last_update": now}
            if isinstance(metadata, Metadata) and (metadata.status, metadata.phase) == ("pending", "init"):
                changes.update(phase="idle", phase_time=now)
            self._write({**self._values(), **changes})

    def end(self, ending: AttemptOutcome, *, rank: int = 0) -> None:
        """Say how the attempt ended where it did not say so itself."""
        alone = self.alone
        with contextlib.suppress(OSError):
            error = current_error(self._folder, str(self._key), self._start)
            if isinstance(error, Sentinel):
                self._finish("failed", error.message)
            elif self.completed:
                self._finish("succeeded", None)
            elif not self.open:
                return
            elif ending.status == "cancelled":
                self._finish("cancelled", ending.reason)
            elif ending.status == "succeeded" and alone:
                record_completion(self._folder, key=str(self._key), step=None, tell=self._tell)
                self._finish("succeeded", ending.reason)
            else:
                self._fail(ending, rank)

    def _fail(self, ending: AttemptOutcome, rank: int) -> None:
        if ending.status == "succeeded":
            # A training that uses the library says so when it has succeeded.
            ending = AttemptOutcome(
                "failed", "the command ended with status 0 and left no word", FAILURES["nonzero_exit"]
            )
        record_ending(self._folder, self._key, ending, rank, self._tell)
        self._finish("failed", ending.reason)

    def _finish(self, status: str, reason: str | None) -> None:
        with writing(str(self._folder)):
            if not self.open:
                return
            changes: dict[str, Any] = {"status": status, "end_time": to_iso(time.time())}
            if status == "succeeded":
                changes.update(phase="done", phase_time=changes["end_time"])
            if reason:
                changes["reason"] = " ".join(shorten(reason, MAX_MESSAGE).split())
            self._write({**self._values(), **changes})

    def _tell(self, name: str, content: bytes) -> None:
        if self._copy is not None:
            self._copy.put(name, content)

    def _metadata(self) -> Metadata | None:
        """The metadata, if it is this attempt's."""
        metadata = read_metadata(self._folder)
        return metadata if isinstance(metadata, Metadata) and metadata.attempt_key == str(self._key) else None

    def _write(self, values: dict[str, Any]) -> None:
        self._said = values
        if self._copy is not None:
            values["s3"] = self._copy.state()
        path, content = self._folder / METADATA, encode(values)
        try:
            replace(str(path), content)
        except OSError:
            self._tell(METADATA, content)
            raise
        if self._copy is not None:
            # As it is when its turn comes: by then the training may have written its own.
            self._copy.put_file(METADATA, path)

    def _values(self) -> dict[str, Any]:
        document = read_document(self._folder / METADATA)
        if not isinstance(document, Document):
            return {}
        return {name: value for name, value in document.values.items() if _can_be_written(value)}


def record_ending(folder: Path, key: AttemptKey, ending: AttemptOutcome, rank: int, tell: Teller | None = None) -> None:
    """Write the `_error` of an attempt that failed; the first writer wins.

    Raises:
        OSError: the folder cannot be written.
    """
    record_failure(
        folder,
        key=str(key),
        failure=ending.failure or FAILURES["nonzero_exit"],
        message=ending.reason or "",
        rank=rank,
        exception_type=ending.exception_type,
        traceback=ending.traceback,
        exit_code=ending.exit_code,
        tell=tell,
    )


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _can_be_written(value: object) -> bool:
    """Whether what somebody wrote into the record is strict JSON; NaN is not."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
