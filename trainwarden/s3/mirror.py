"""The thread that keeps the copy of a run's record in S3, so that no other thread waits for S3."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from trainwarden.clients.s3 import S3Bucket, S3Error, S3Object
from trainwarden.clients.s3_location import S3Location
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import ERROR, LOG, METADATA, RANKS
from trainwarden.s3.remote_record import RemoteRecord, fetch_journals, fetch_record
from trainwarden.s3.upload_queue import Content, UploadQueue, is_sentinel
from trainwarden.s3.uploader import RecordUploader

_RETRY_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 60.0
# An end that takes longer logs what it waits for.
SILENT_SECONDS = 1.0

logger = logging.getLogger("trainwarden")


class S3Mirror:
    """Uploads the latest content of each file of a record, and retries with backoff until it is there.

    Every request is made in its thread, which exists from `open` on: a process that is out of memory can start none.
    The order of calls is `open`, `fetch` where the attempt is to begin from the record in S3, `begin`, `put`…, `close`.

    Args:
        bucket: of the record; used by the thread alone.
        uploader: likewise.
        log: path of the run's output, as `trainwarden exec` writes it; uploaded too where it exists.
        whole: whether this process writes the whole record, and not only its own failure.
    """

    def __init__(self, bucket: S3Bucket, uploader: RecordUploader, log: Path, *, whole: bool) -> None:
        self._bucket = bucket
        self._uploader = uploader
        self._log = log
        self._whole = whole
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="trainwarden-s3", daemon=True)
        self._queue = UploadQueue()
        self._health = RequestHealth(bucket.location)
        self._wake = threading.Event()
        self._reads: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._results: SimpleQueue[Any] = SimpleQueue()
        self._began = False
        self._remote: RemoteRecord | None = None
        self._taken_over = not whole
        self._urgent = False
        self._deadline: float | None = None
        self._closed = threading.Event()

    def open(self) -> None:
        """Start the thread, which connects at once.

        Raises:
            RuntimeError: no more threads can be started.
        """
        self._thread.start()

    def fetch_record(self, timeout_seconds: float) -> RemoteRecord | S3Error:
        """Return the record in S3, or the reason why it cannot be read."""
        result: RemoteRecord | S3Error = self._read(lambda: fetch_record(self._bucket), timeout_seconds)
        return result

    def fetch_journals(self, timeout_seconds: float) -> dict[str, S3Object | None] | S3Error:
        """Return the journals in S3, or the reason why they cannot be read."""
        result: dict[str, S3Object | None] | S3Error = self._read(lambda: fetch_journals(self._bucket), timeout_seconds)
        return result

    def fetch_error(self, timeout_seconds: float) -> None:
        """Copy the `_error` that a rank on another node uploaded for this attempt into the folder. Never raises."""
        if os.getpid() == self._pid and self._whole and not self._health.is_failing:
            self._read(self._uploader.fetch_error, timeout_seconds)

    def begin(self, remote: RemoteRecord | None) -> None:
        """Begin to upload. `remote` is what the folder was restored from; None if that could not be read."""
        self._remote = remote
        self._began = True
        self._wake.set()

    def put(self, name: str, content: bytes) -> None:
        """Queue `content` for upload; only the latest of each name counts. Never blocks, never raises."""
        self._put(name, content)

    def put_file(self, name: str, path: Path) -> None:
        """Queue a file, of which the last 4 MiB are read when it is uploaded. Never blocks, never raises."""
        self._put(name, path)

    def remove(self, name: str) -> None:
        """Queue the removal of a sentinel of this attempt. Never blocks, never raises."""
        self._put(name, None)

    def fetch(self, names: tuple[str, ...], timeout_seconds: float) -> dict[str, bytes]:
        """Return the content of files in S3; absent ones, and all if it does not answer, are left out. Never raises."""
        if os.getpid() != self._pid or self._deadline is not None:
            return {}
        found = self._read(lambda: [(name, self._bucket.get(name)) for name in names], timeout_seconds)
        return {} if isinstance(found, S3Error) else {name: stored.data for name, stored in found if stored is not None}

    def state(self) -> dict[str, Any]:
        """Return the object `s3` of `metadata.json`. `waiting` counts the files that are due."""
        return self._health.state(self._queue.count(time.monotonic()))

    def close(self, timeout_seconds: float) -> bool:
        """Upload all that waits, due or not, and accept nothing more; False if that took too long."""
        if not self._thread.is_alive():
            # As in a forked child.
            return False
        self._deadline = time.monotonic() + timeout_seconds
        self._wake.set()
        if timeout_seconds > SILENT_SECONDS and not self._closed.wait(SILENT_SECONDS):
            remaining = timeout_seconds - SILENT_SECONDS
            logger.warning("waiting for S3 to take the end of %s, for up to %.0f s", self._bucket.location, remaining)
        return self._closed.wait(max(0.0, self._deadline - time.monotonic())) and self._queue.next_due() is None

    def _read(self, read: Callable[[], Any], timeout_seconds: float) -> Any:
        """Call `read` in the thread and return its result, or the S3Error."""
        while not self._results.empty():
            # The result of a read that timed out.
            self._results.get()
        self._reads.put(read)
        self._wake.set()
        try:
            return self._results.get(timeout=timeout_seconds)
        except Empty:
            failure = S3Error("NoAnswer", self._bucket.location)
            self._health.failed(failure.code, str(failure))
            return failure

    def _put(self, name: str, content: Content) -> None:
        is_wanted = not name.startswith(f"{RANKS}/") if self._whole else name == ERROR
        if not is_wanted or self._deadline is not None or os.getpid() != self._pid:
            return
        try:
            self._queue.put(name, content, time.monotonic())
            if name == METADATA and self._log.exists():
                self._queue.put(LOG, self._log, time.monotonic())
        except (ValueError, OSError) as error:
            self._health.failed("TooLarge" if isinstance(error, ValueError) else type(error).__name__, str(error))
        self._urgent = self._urgent or is_sentinel(name)
        self._wake.set()

    def _run(self) -> None:
        self._try(self._bucket.connect)
        while self._try(self._work):
            # Most likely out of memory, which may pass.
            time.sleep(_RETRY_SECONDS)
        self._closed.set()

    def _work(self) -> bool:
        while self._deadline is None:
            self._wake.wait(self._pause())
            self._wake.clear()
            if not self._reads.empty():
                self._results.put(self._result_of(self._reads.get()))
            now = time.monotonic()
            if self._began and (self._urgent or now >= self._health.not_before):
                # A sentinel refers to files that were written before it: upload all of them.
                urgent, self._urgent = self._urgent, False
                self._upload(self._queue.due(float("inf") if urgent else now))
        if self._began:
            self._finish(self._deadline)
        return False

    def _pause(self) -> float | None:
        due = self._queue.next_due() if self._began else None
        return None if due is None else max(0.0, max(due, self._health.not_before) - time.monotonic())

    def _finish(self, deadline: float) -> None:
        """Upload everything, and retry until the deadline while that may help."""
        while not self._upload(self._queue.due(float("inf"))):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            time.sleep(min(remaining, _RETRY_SECONDS * random.uniform(0.5, 1)))  # noqa: S311  # spreads the load

    def _result_of(self, read: Callable[[], Any]) -> Any:
        results: list[Any] = []

        def request() -> bool:
            results.append(read())
            return True

        return self._try(request) or results[0]

    def _upload(self, files: list[tuple[str, Content]]) -> bool:
        """Upload `files`; False if a retry may help. What S3 refuses is not retried."""
        if files and not self._taken_over:
            error = self._try(self._take_over)
            # A refusal is permanent, and must not keep the files from being uploaded.
            self._taken_over = error is None or error.refused
            if not self._taken_over:
                return False
        for name, content in files:
            error = self._try(partial(self._uploader.send, name, content))
            if error is None:
                self._queue.mark_uploaded(name, content, time.monotonic())
            elif not error.refused:
                # S3 does not answer; the other files would fail too.
                return False
        return True

    def _take_over(self) -> bool:
        if self._remote is None:
            self._uploader.take_over_late(fetch_record(self._bucket))
        else:
            self._uploader.take_over(self._remote)
        return True

    def _try(self, request: Callable[[], bool]) -> S3Error | None:
        """Call `request`, which returns whether it asked S3 at all, and return its error; count both."""
        try:
            if request():
                self._health.succeeded()
        except Exception as error:  # noqa: BLE001  # the thread must survive whatever goes wrong in it
            failure = error if isinstance(error, S3Error) else S3Error(type(error).__name__, self._bucket.location)
            self._health.failed(failure.code, str(failure))
            return failure
        return None


class RequestHealth:
    """The success of the requests to S3: for `metadata.json`, for the log, and for the backoff.

    Any thread may read it; it is written by the thread that makes the requests and, before that, by the one that waits.
    """

    def __init__(self, location: S3Location) -> None:
        self._location = location
        self._last_success: float | None = None
        self._last_error: str | None = None
        self._errors = 0
        self._failures_in_a_row = 0
        # No request before this time of the monotonic clock.
        self.not_before = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether the last request failed."""
        return self._failures_in_a_row > 0

    def succeeded(self) -> None:
        """Record a successful request and end the backoff."""
        if self._failures_in_a_row:
            logger.warning("the run record in S3, %s, can be written again", self._location)
        self._last_success, self._failures_in_a_row, self.not_before = time.time(), 0, 0.0

    def failed(self, code: str, text: str) -> None:
        """Record a failed request and extend the backoff, up to a minute.

        Args:
            code: for the record.
            text: for the log.
        """
        is_repeated = self._failures_in_a_row and code == self._last_error
        level = logging.DEBUG if is_repeated else logging.WARNING
        self._errors += 1
        self._last_error = code
        logger.log(level, "the run record in S3 could not be read or written, the run goes on: %s", text)
        pause = min(_LONGEST_BACKOFF_SECONDS, 2.0 ** min(self._failures_in_a_row, 10))
        # Jitter: a thousand runs that lost S3 at once must not retry at once.
        self.not_before = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311
        self._failures_in_a_row += 1

    def state(self, waiting: int) -> dict[str, Any]:
        """Return the object `s3` of `metadata.json`."""
        success = self._last_success
        return {
            "url": str(self._location),
            "last_success": None if success is None else to_iso(success),
            "errors": self._errors,
            "last_error": self._last_error,
            "waiting": waiting,
        }
