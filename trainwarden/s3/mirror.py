"""The thread that keeps the copy of a run's record in S3, so that nothing else ever waits for S3."""

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

from trainwarden.record.folder import ERROR, LOG, METADATA, RANKS
from trainwarden.s3.bucket import Bucket, S3Error, Stored
from trainwarden.s3.health import Health
from trainwarden.s3.held import Held, fetch
from trainwarden.s3.journals import fetch_journals
from trainwarden.s3.outbox import Content, Outbox, is_sentinel
from trainwarden.s3.sender import Sender

_LAST_PAUSE_SECONDS = 1.0
# An end that takes longer says what it waits for.
_SILENT_SECONDS = 1.0

logger = logging.getLogger("trainwarden")


class Mirror:
    """Copies what a record's files say to S3: the latest of each, in its turn, again and again until it is there.

    Every request is made in its thread, which exists from `open` on: a process without memory can begin none. The order
    of calls is `open`, `fetch` where the attempt is to begin from what S3 holds, `begin`, `put`…, `close`.

    Args:
        bucket: where the record is; used by the thread alone.
        sender: what writes there; likewise.
        log: where a launcher may keep the run's output, which goes along.
        whole: whether this process writes the whole record, and not only its own failure.
    """

    def __init__(self, bucket: Bucket, sender: Sender, log: Path, *, whole: bool) -> None:
        self._bucket = bucket
        self._sender = sender
        self._log = log
        self._whole = whole
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="trainwarden-s3", daemon=True)
        self._outbox = Outbox()
        self._health = Health(bucket.location)
        self._wake = threading.Event()
        self._questions: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._began = False
        self._held: Held | None = None
        self._taken_over = not whole
        self._hurry = False
        self._deadline: float | None = None
        self._closed = threading.Event()

    def open(self) -> None:
        """Start the thread, which connects at once.

        Raises:
            RuntimeError: there can be no more threads.
        """
        self._thread.start()

    def fetch(self, timeout_seconds: float) -> Held | S3Error:
        """What S3 holds of the record now, or why that cannot be known."""
        answer: Held | S3Error = self._ask(lambda: fetch(self._bucket), timeout_seconds)
        return answer

    def fetch_journals(self, timeout_seconds: float) -> dict[str, Stored | None] | S3Error:
        """What S3 holds of the run's journals now, or why that cannot be known."""
        answer: dict[str, Stored | None] | S3Error = self._ask(lambda: fetch_journals(self._bucket), timeout_seconds)
        return answer

    def bring_error(self, timeout_seconds: float) -> None:
        """Put the `_error` of this attempt that a rank on another node left in S3 into the folder. Never raises."""
        if os.getpid() == self._pid and self._whole and not self._health.is_failing:
            self._ask(self._sender.bring_error, timeout_seconds)

    def begin(self, held: Held | None) -> None:
        """Begin to write. `held` is what the folder was filled from; None if that could not be read."""
        self._held = held
        self._began = True
        self._wake.set()

    def put(self, name: str, content: bytes) -> None:
        """Have a file replaced by `content`; only the latest of each name counts. Never blocks, never raises."""
        self._put(name, content)

    def put_file(self, name: str, path: Path) -> None:
        """Have a file replaced by the last 4 MiB of `path`, as they are in its turn. Never blocks, never raises."""
        self._put(name, path)

    def state(self) -> dict[str, Any]:
        """How the copy fares, as `metadata.json` says it in `s3`. `waiting` counts the files whose turn has come."""
        return self._health.state(self._outbox.count(time.monotonic()))

    def close(self, timeout_seconds: float) -> bool:
        """Send what waits, without regard to turns; False if that could not be done in time. Nothing is taken after."""
        if not self._thread.is_alive():
            # As in a forked child.
            return False
        self._deadline = time.monotonic() + timeout_seconds
        self._wake.set()
        if timeout_seconds > _SILENT_SECONDS and not self._closed.wait(_SILENT_SECONDS):
            left = timeout_seconds - _SILENT_SECONDS
            logger.warning("waiting for S3 to take the end of %s, for up to %.0f s", self._bucket.location, left)
        return self._closed.wait(max(0.0, self._deadline - time.monotonic())) and self._outbox.next_due() is None

    def _ask(self, question: Callable[[], Any], timeout_seconds: float) -> Any:
        while not self._answers.empty():
            self._answers.get()
        self._questions.put(question)
        self._wake.set()
        try:
            return self._answers.get(timeout=timeout_seconds)
        except Empty:
            failure = S3Error("NoAnswer", self._bucket.location)
            self._health.failed(failure.code, str(failure))
            return failure

    def _put(self, name: str, content: Content) -> None:
        wanted = not name.startswith(f"{RANKS}/") if self._whole else name == ERROR
        if not wanted or self._deadline is not None or os.getpid() != self._pid:
            return
        try:
            self._outbox.put(name, content, time.monotonic())
            if name == METADATA and self._log.exists():
                self._outbox.put(LOG, self._log, time.monotonic())
        except (ValueError, OSError) as error:
            self._health.failed("TooLarge" if isinstance(error, ValueError) else type(error).__name__, str(error))
        self._hurry = self._hurry or is_sentinel(name)
        self._wake.set()

    def _run(self) -> None:
        self._tried(self._bucket.connect)
        while self._tried(self._work):
            # Out of memory, most likely; it may get better.
            time.sleep(_LAST_PAUSE_SECONDS)
        self._closed.set()

    def _work(self) -> bool:
        while self._deadline is None:
            self._wake.wait(self._pause())
            self._wake.clear()
            if not self._questions.empty():
                self._answers.put(self._answer(self._questions.get()))
            now = time.monotonic()
            if self._began and (self._hurry or now >= self._health.not_before):
                # A sentinel speaks of what was written before it.
                hurry, self._hurry = self._hurry, False
                self._send(self._outbox.due(float("inf") if hurry else now))
        if self._began:
            self._finish(self._deadline)
        return False

    def _pause(self) -> float | None:
        due = self._outbox.next_due() if self._began else None
        return None if due is None else max(0.0, max(due, self._health.not_before) - time.monotonic())

    def _finish(self, deadline: float) -> None:
        """Everything once more, and again until the deadline while that may help."""
        while not self._send(self._outbox.due(float("inf"))):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LAST_PAUSE_SECONDS * random.uniform(0.5, 1)))  # noqa: S311  # spreads the load

    def _answer(self, question: Callable[[], Any]) -> Any:
        answers: list[Any] = []

        def ask() -> bool:
            answers.append(question())
            return True

        return self._tried(ask) or answers[0]

    def _send(self, files: list[tuple[str, Content]]) -> bool:
        """Send what is due; False if something of it may get there later, where all that S3 refused is given up."""
        if files and not self._taken_over:
            error = self._tried(self._take_over)
            # What S3 refuses once it refuses always, and must not keep the rest from getting there.
            self._taken_over = error is None or error.refused
            if not self._taken_over:
                return False
        for name, content in files:
            error = self._tried(partial(self._sender.send, name, content))
            if error is None:
                self._outbox.sent(name, content, time.monotonic())
            elif not error.refused:
                # Nothing else would get there either.
                return False
        return True

    def _take_over(self) -> bool:
        if self._held is None:
            self._sender.take_over_late(fetch(self._bucket))
        else:
            self._sender.take_over(self._held)
        return True

    def _tried(self, request: Callable[[], bool]) -> S3Error | None:
        """Why a request failed, if it did; it returns whether S3 was asked at all."""
        try:
            if request():
                self._health.succeeded()
        except Exception as error:  # noqa: BLE001  # the thread outlives whatever goes wrong in it
            failure = error if isinstance(error, S3Error) else S3Error(type(error).__name__, self._bucket.location)
            self._health.failed(failure.code, str(failure))
            return failure
        return None
