"""An append-only file of lines with a bounded queue in memory and one rotation."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path

from trainwarden.training.brief_lock import BriefLock

# One older file of this size is kept.
ROTATE_BYTES = 4 * 2**20
# Lines that wait for a full or hanging disk; lines beyond that are counted and dropped.
MAX_WAITING_BYTES = 2**20
# What a line in memory takes beyond its characters.
_OVERHEAD_BYTES = 100


class JournalFile:
    """Lines are added by any thread, and by a signal handler that interrupts one; one thread writes them.

    A line leaves the memory only when all of it is in the file. `dropped` counts the lines for which there was no room.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._older = path.with_name(f"{path.name}.1")
        self.dropped = 0
        self._lock = BriefLock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def is_full(self) -> bool:
        """Whether the next line would be dropped; a cheap check before a line is encoded."""
        return self._waiting_bytes >= MAX_WAITING_BYTES

    def add(self, line: bytes, *, required: bool = False) -> None:
        """Queue a line, which includes its line end; a `required` line is never dropped."""
        with self._lock:
            if self.is_full() and not required:
                self.dropped += 1
                return
            self._waiting_bytes += len(line) + _OVERHEAD_BYTES
            self._waiting.append(line)

    def drop(self) -> None:
        """Count a line that was not encoded because the queue is full."""
        with self._lock:
            self.dropped += 1

    def flush(self) -> list[Path]:
        """Append the waiting lines and return the files that changed.

        Raises:
            OSError: not everything could be written; the rest still waits.
        """
        waiting = len(self._waiting)
        changed = [self.path] if waiting else []
        while waiting:
            waiting -= self._append_until_full(waiting)
            if waiting:
                changed = [self.path, self._older]
        return changed

    def _append_until_full(self, lines: int) -> int:
        """Append up to `lines` lines, rotate if the file is full, and return how many were appended."""
        descriptor = _open(self.path)
        try:
            size = os.fstat(descriptor).st_size
            # The writer before may have been killed in the middle of a line.
            start = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            for written in range(lines):
                line = self._waiting[0]
                if size and size + len(line) > ROTATE_BYTES:
                    self.path.replace(self._older)
                    return written
                size += _append(descriptor, start + line, size)
                start = b""
                self._waiting.popleft()
                with self._lock:
                    self._waiting_bytes -= len(line) + _OVERHEAD_BYTES
            return lines
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        # The folder was removed while the run goes on.
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a plain file")
    return descriptor


def _append(descriptor: int, line: bytes, size: int) -> int:
    # One write per line, so that the lines of two writers never mix.
    written = os.write(descriptor, line)
    if written == len(line):
        return written
    # The disk is full. Remove the partial line, unless another process has written after it.
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
    raise OSError(f"only {written} of {len(line)} bytes could be written")
