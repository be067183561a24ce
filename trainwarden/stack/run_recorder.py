"""What the local launcher writes into the run record.

The record belongs to the training. The launcher says only what the training cannot: that an attempt is about to begin,
that it died without a word, and, for a command that does not use the library at all, that it lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwarden.classify import classify_exit
from trainwarden.identity import host_name
from trainwarden.record.clock import to_iso
from trainwarden.record.crash import record_crash
from trainwarden.record.document import Document, read_document
from trainwarden.record.files import Metadata, read_metadata
from trainwarden.record.folder import LOG, METADATA, write_json
from trainwarden.record.sentinels import (
    Sentinel,
    announce_restart,
    announced_restart,
    current_completion,
    current_error,
    record_completion,
    record_failure,
)
from trainwarden.record.thresholds import Thresholds
from trainwarden.stack import launcher
from trainwarden.stack.launcher import Job
from trainwarden.taxonomy import FAILURES

_LIVENESS_SECONDS = 5.0


class RunRecorder:
    """The launcher's pen on one run folder. Its writing never stops the job: a full disk costs words, not work.

    `thresholds` are for a command that does not use the library; the others bring their own.
    """

    def __init__(self, folder: Path, thresholds: Thresholds) -> None:
        self._folder = folder
        self._thresholds = thresholds
        self._written = 0.0

    def started(self, job: Job) -> None:
        """A new attempt is pending; the log of the one before is put aside."""
        with contextlib.suppress(OSError):
            log = self._folder / LOG
            if log.exists():
                log.replace(log.with_name(f"training_log_{int(log.stat().st_mtime)}_{job.generation}.txt"))
            now = to_iso(time.time())
            values = self._values()
            metadata = read_metadata(self._folder)
            known = metadata.attempts if isinstance(metadata, Metadata) else ()
            number = 1 + max((each.attempt for each in known), default=-1)
            attempts = [each for each in values.get("attempts") or () if isinstance(each, dict)] if known else []
            for stale in ("end_time", "reason"):
                values.pop(stale, None)
            values.update(
                run_id=job.run_id,
                version=1,
                status="pending",
                phase="init",
                last_update=now,
                attempt=number,
                attempt_key=job.attempt_key,
                attempts=[*attempts, {"attempt": number, "key": job.attempt_key, "start_time": now}],
                attempt_start_time=now,
                phase_time=now,
                job_id=job.job_id,
                scheduler="local",
                thresholds=self._thresholds.as_json(),
                host=host_name(),
                pid=os.getpid(),
            )
            values.setdefault("start_time", now)
            write_json(self._folder / METADATA, values)
            self._written = time.monotonic()

    def alive(self, job: Job, *, moving: Callable[[], bool]) -> None:
        """Where nothing but the launcher writes, it says that the command lives: idle, since it shows no steps."""
        if time.monotonic() - self._written < _LIVENESS_SECONDS:
            return
        self._written = time.monotonic()
        if self._alone(job) and moving():
            self._update(status="running", phase="idle", last_update=to_iso(time.time()))

    def restarting(self, job: Job, reason: str, intent: str) -> None:
        """Let the dying attempt know why."""
        with contextlib.suppress(OSError):
            announce_restart(self._folder, job.attempt_key, reason, intent)

    def completed(self, job: Job) -> bool | None:
        """True if the attempt left its `_complete`; False if a training that uses the library ended without a word."""
        if isinstance(current_completion(self._folder, job.attempt_key, job.started), Sentinel):
            return True
        return False if self._open() and not self._alone(job) else None

    def ended(self, job: Job) -> None:
        """Say how the attempt ended where it did not say so itself."""
        alone = self._alone(job)
        with contextlib.suppress(OSError):
            if isinstance(current_error(self._folder, job.attempt_key, job.started), Sentinel):
                return
            if job.state == launcher.CANCELLED:
                self._finish("cancelled", "ended from outside")
            elif job.state == launcher.COMPLETED:
                if alone:
                    record_completion(self._folder, key=job.attempt_key, step=None)
                    self._finish("succeeded", None)
            elif announced_restart(self._folder, job.attempt_key):
                self._finish("cancelled", "restart")
            else:
                self._fail(job)

    def _fail(self, job: Job) -> None:
        code = job.exit_code if job.exit_code is not None else 1
        metadata = read_metadata(self._folder)
        if isinstance(metadata, Metadata) and record_crash(self._folder, metadata):
            self._finish("failed", "a rank crashed")
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        record_failure(
            self._folder,
            key=job.attempt_key,
            failure=classify_exit(code) or FAILURES["nonzero_exit"],
            message=f"the command {how} and left no word",
            exit_code=code if code >= 0 else 128 - code,
        )
        self._finish("failed", f"the command {how}")

    def _open(self) -> bool:
        """Whether the record does not know yet how the attempt ended."""
        metadata = read_metadata(self._folder)
        return isinstance(metadata, Metadata) and metadata.status in ("running", "pending")

    def _finish(self, status: str, reason: str | None) -> None:
        if self._open():
            changes: dict[str, Any] = {"status": status, "end_time": to_iso(time.time())}
            if reason:
                changes["reason"] = reason
            self._update(**changes)

    def _alone(self, job: Job) -> bool:
        """Whether the launcher is the only one who has written about this attempt."""
        metadata = read_metadata(self._folder)
        return (
            isinstance(metadata, Metadata) and metadata.attempt_key == job.attempt_key and metadata.pid == os.getpid()
        )

    def _update(self, **changes: object) -> None:
        with contextlib.suppress(OSError):
            write_json(self._folder / METADATA, {**self._values(), **changes})

    def _values(self) -> dict[str, Any]:
        document = read_document(self._folder / METADATA)
        if not isinstance(document, Document):
            return {}
        return {name: value for name, value in document.values.items() if _can_be_written(value)}


def _can_be_written(value: object) -> bool:
    """Whether what somebody wrote into the record is strict JSON; NaN is not."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
