"""The output of a command: passed on at once, byte by byte, and kept."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Sequence

_CHUNK_BYTES = 64 * 1024
# A pipe holds this much; output that is written while it is emptied for the last time is not waited for.
_LAST_CHUNKS = 16


class Output:
    """Copies pipes to where they would have led, and to `keep`, in a thread of its own.

    It holds one chunk at a time: where our output is not read, the command waits, as it would without `exec`. Where the
    reader of our output has gone, the command's pipe is closed, and its next write fails, as it would without `exec`.
    """

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        self._keep = keep
        self._targets: dict[int, int] = {}
        self._wake, self._waker = os.pipe()
        self._deadline: float | None = None
        self._thread = threading.Thread(target=self._run, name="trainwarden-output", daemon=True)

    def pipes(self, targets: Sequence[int]) -> list[int]:
        """Return the ends for the command to write to, one for each target; targets that are one file share a pipe."""
        ends: dict[tuple[int, int], int] = {}
        made = []
        for target in targets:
            status = os.fstat(target)
            file = (status.st_dev, status.st_ino)
            if file not in ends:
                reader, ends[file] = os.pipe()
                self._targets[reader] = target
            made.append(ends[file])
        return made

    def start(self) -> None:
        """Start to copy."""
        self._thread.start()

    def end(self, grace_seconds: float) -> None:
        """Stop `grace_seconds` after the end of the command: processes that it left running may still print."""
        self._deadline = time.monotonic() + grace_seconds
        os.write(self._waker, b".")

    def join(self, timeout: float) -> bool:
        """Wait until everything is passed on; returns False after `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        poll = select.poll()
        for reader in (self._wake, *self._targets):
            poll.register(reader, select.POLLIN)
        while self._targets:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            events = poll.poll(None if left is None else left * 1000)
            ready = [reader for reader, _ in events if reader != self._wake]
            if left is not None and not ready and left == 0.0:
                break
            if len(ready) < len(events):
                poll.unregister(self._wake)
            for reader in ready:
                if not self._copy(reader):
                    poll.unregister(reader)
                    self._close(reader)
            if left == 0.0:
                self._empty()
                break
        for reader in list(self._targets):
            self._close(reader)

    def _empty(self) -> None:
        for reader in list(self._targets):
            os.set_blocking(reader, False)
            for _ in range(_LAST_CHUNKS):
                if not self._copy(reader):
                    break

    def _copy(self, reader: int) -> bool:
        """Copy the bytes that can be read; return False at their end, or if the target is closed."""
        try:
            data = os.read(reader, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            return False
        self._keep(data)
        try:
            _write(self._targets[reader], data)
        except OSError:
            return False
        return True

    def _close(self, reader: int) -> None:
        del self._targets[reader]
        with contextlib.suppress(OSError):
            os.close(reader)


def _write(target: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        try:
            written += os.write(target, data[written:])
        except BlockingIOError:  # noqa: PERF203  # as rare as it is slow
            # Another process on our terminal has made it non-blocking.
            select.select([], [target], [])
