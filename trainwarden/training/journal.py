"""A file that is only ever appended to, one line for each thing that happened."""

import contextlib
import os
import stat
import threading
from collections import deque
from pathlib import Path

# One older file of this size is kept.
ROTATE_BYTES = 4 * 2**20
# What waits for a disk that is full or does not answer; what comes after that is counted and left out.
MAX_WAITING_BYTES = 2**20
# A line in memory is more than its characters.
_OVERHEAD_BYTES = 100


class Journal:
    """Any thread, and a signal handler in the middle of one, may `add`; one thread writes.

    A line leaves the memory only when it is in the file as a whole. `dropped` counts those for which there was no room.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._older = path.with_name(f"{path.name}.1")
        self.dropped = 0
        # Reentrant for the signal handler, and held only while numbers are moved.
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def is_full(self) -> bool:
        """Whether the next line would be left out; a cheap look before the work of making one."""
        return self._waiting_bytes >= MAX_WAITING_BYTES

    def add(self, line: bytes, *, must: bool = False) -> None:
        """Have a line written, its end included; one that `must` be is never left out."""
        with self._lock:
            if self.is_full() and not must:
                self.dropped += 1
                return
            self._waiting_bytes += len(line) + _OVERHEAD_BYTES
            self._waiting.append(line)

    def drop(self) -> None:
        """Count a line that was not even made, as there is no room for it."""
        with self._lock:
            self.dropped += 1

    def flush(self) -> list[Path]:
        """Append what waits; which files have changed by that.

        Raises:
            OSError: not everything could be written; the rest still waits.
        """
        waiting = len(self._waiting)
        changed = [self.path] if waiting else []
        while waiting:
            waiting -= self._append_to_one_file(waiting)
            if waiting:
                changed = [self.path, self._older]
        return changed

    def _append_to_one_file(self, lines: int) -> int:
        descriptor = _open(self.path)
        try:
            size = os.fstat(descriptor).st_size
            # Whoever wrote before may have been killed in the middle of a line.
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
        # Somebody removed the folder under the run.
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a plain file")
    return descriptor


def _append(descriptor: int, line: bytes, size: int) -> int:
    # One write for each line: two writers never mix theirs.
    written = os.write(descriptor, line)
    if written == len(line):
        return written
    # The disk is full. The part is taken back, unless somebody else wrote behind it.
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
    raise OSError(f"only {written} of {len(line)} bytes could be written")
