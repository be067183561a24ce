"""One log file, followed by its path through rotation, truncation, replacement and absence."""

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.signals.tailing.opening import open_log
from trainwarden.signals.tailing.remainder import FINGERPRINT, Position, find_remainder, is_at

__all__ = ["Follower", "Piece", "Position"]

ROTATED, TRUNCATED, REMOVED, REPLACED = "rotated", "truncated", "removed", "replaced"
# So many zeros may be the beginning of a hole of any size.
_HOLE = 4096


@dataclass(frozen=True)
class Piece:
    """Bytes of a log.

    Attributes:
        data: from where the follower is.
        anew: they begin another text than the piece before.
        last: nothing follows in this file.
    """

    data: bytes
    anew: bool
    last: bool


class Follower:
    """Reads a log from where it was left. No byte is read twice, and bytes that are skipped are counted.

    Call `poll` once, then `read` and `consume` until there is no more: what is not consumed is read again. All may
    raise `OSError` and `Refused`; the next round continues from the same place.

    Args:
        path: of the log; need not exist yet.
        roots: folders outside of which nothing is read.
        position: where an earlier follower stopped.
        first_read: bytes at the end of a log that are read at most when it is first seen.

    Attributes:
        size, modified: of the file as it was polled; `modified` in Unix seconds, None before there was one.
        skipped: bytes before `first_read` that were not read.
        restarts: how often the text began again, by reason.
        stays: another reader reads the file that is at the path now.
    """

    def __init__(
        self, path: str, roots: Sequence[str], position: Position | None = None, *, first_read: int = 64 * 2**20
    ) -> None:
        self.path = path
        self.size = position.offset if position else 0
        self.modified: float | None = None
        self.skipped = 0
        self.restarts: Counter[str] = Counter()
        self.stays = False
        self._roots = roots
        self._first_read = first_read
        self._descriptor: int | None = None
        self._position = position
        self._known: tuple[int, int, int] | None = None  # what was at the path when the file was closed
        self._anew = position is None
        self._resumed = position is not None  # and not looked for yet
        self._over = False  # nothing comes any more in the file that is open
        self._mid_line = False
        self._piece = b""
        self._finished: list[Position] = []

    @property
    def offset(self) -> int:
        """The offset of the next byte to read, in its file."""
        return self._position.offset if self._position else 0

    @property
    def lag(self) -> int:
        """The number of bytes still to be read, as of the last poll."""
        return max(0, self.size - self.offset)

    @property
    def position(self) -> Position | None:
        """Where to continue after a restart; None before the file was first seen."""
        return self._position

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the open file; None if none is open."""
        if self._descriptor is None:
            return None
        with contextlib.suppress(OSError):
            status = os.fstat(self._descriptor)
            return status.st_dev, status.st_ino
        return None

    def poll(self) -> None:
        """Check for growth, truncation, replacement and removal of the file."""
        try:
            self._poll()
        except OSError as error:
            if error.errno in (errno.ESTALE, errno.EBADF):
                self.close()  # the path may lead to it again
            raise

    def read(self, limit: int) -> Piece | None:
        """Return at most `limit` bytes; None if there are none now."""
        try:
            while self._descriptor is not None and self._position is not None:
                data = self._ahead(limit)
                if data is None:
                    self._start_over(TRUNCATED)
                elif not data:
                    if not self._over:
                        return None
                    self._next_file()
                elif not self._skip_hole(data) and not self._skip_to_line(data):
                    self._piece = data
                    return Piece(data, self._anew, self._over and len(data) < limit)
        except OSError as error:
            if error.errno in (errno.ESTALE, errno.EBADF):
                self.close()
            raise
        return None

    def consume(self, count: int) -> None:
        """Continue after the first `count` bytes of the last piece."""
        if count:
            self._advance(self._piece[:count])
            self._piece = b""
            self._anew = False

    def skip_to_end(self, keep: int) -> None:
        """Leave out what is not read yet but for its last `keep` bytes, from the next whole line on."""
        if self._descriptor is not None and self.lag > keep:
            self.skipped += self.lag - keep
            self._move(self.size - keep)
            self._anew, self._mid_line = True, True

    def resume(self, position: Position | None) -> None:
        """Begin at a position, before the first poll."""
        self._position, self._anew, self._resumed = position, position is None, position is not None

    def take_finished(self) -> list[Position]:
        """Return where the reading of files ended since the last call: at their end, or where they were cut off."""
        finished, self._finished = self._finished, []
        return finished

    def close_idle(self) -> None:
        """Close the file while it does not change; `poll` opens it again."""
        if self._descriptor is not None and not self.lag and not self._over:
            with contextlib.suppress(OSError):
                status = Path(self.path).stat()
                self._known = status.st_ino, status.st_size, status.st_mtime_ns
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _poll(self) -> None:
        try:
            there = Path(self.path).stat()
        except FileNotFoundError:
            if self._resumed and self._position is not None:
                # It was put aside while nothing read it, and no other has begun.
                self._descriptor = find_remainder(self.path, self._position, self._roots)
            self._resumed = False
            if self._descriptor is not None:
                self._look(os.fstat(self._descriptor))
                # Renamed, it may still be written to; removed, it only holds the disk's space.
                self._over = os.fstat(self._descriptor).st_nlink == 0
            return
        self._resumed = False
        if self._descriptor is None:
            if self._known == (there.st_ino, there.st_size, there.st_mtime_ns):
                return
            self._open()
            self._known = None
        current = os.fstat(self._fd)
        # While the new file is empty its writer may still write to the old one.
        another = (there.st_dev, there.st_ino) != (current.st_dev, current.st_ino)
        self._over = (another and there.st_size > 0 and not self.stays) or current.st_nlink == 0
        self._look(current)

    def _look(self, status: os.stat_result) -> None:
        self.size, self.modified = status.st_size, status.st_mtime
        position = self._position
        if position is None:
            return
        if status.st_size < position.offset or os.pread(self._fd, len(position.head), 0) != position.head:
            self._start_over(TRUNCATED)

    def _open(self) -> None:
        descriptor = open_log(self.path, self._roots)
        position = self._position
        if position is None:
            self._begin(descriptor, self._first_read)
        elif is_at(descriptor, position) and os.fstat(descriptor).st_ino == position.inode:
            self._descriptor = descriptor
        elif (older := find_remainder(self.path, position, self._roots)) is not None:
            os.close(descriptor)
            self._descriptor = older
        else:
            self.restarts[REPLACED] += 1
            self._finished.append(position)
            self._begin(descriptor, None)

    def _begin(self, descriptor: int, first_read: int | None) -> None:
        """Read a file from its beginning, or its last `first_read` bytes."""
        self._descriptor, self._anew, self._mid_line = descriptor, True, False
        status = os.fstat(descriptor)
        start = 0 if first_read is None else max(0, status.st_size - first_read)
        if start:
            self.skipped += start
            self._mid_line = True
        head = os.pread(descriptor, min(FINGERPRINT, start), 0)
        before = os.pread(descriptor, min(FINGERPRINT, start), start - min(FINGERPRINT, start))
        self._position = Position(status.st_ino, start, head, before)
        self.size, self.modified = status.st_size, status.st_mtime

    def _ahead(self, limit: int) -> bytes | None:
        """Return the next bytes; None if those before them have changed."""
        before = self._at.before
        data = os.pread(self._fd, len(before) + limit, self._at.offset - len(before))
        return data[len(before) :] if data.startswith(before) else None

    def _start_over(self, why: str) -> None:
        """Continue with a copy that holds the unread rest of the text before; without one, with the new text."""
        position, descriptor = self._position, self._fd
        self.restarts[why] += 1
        copy = find_remainder(self.path, position, self._roots, but=descriptor) if position else None
        if copy is not None:
            os.close(descriptor)
            self._descriptor, self._over = copy, True
        else:
            if position is not None:
                self._finished.append(position)  # a copy of it may be found later
            self._begin(descriptor, None)

    def _next_file(self) -> None:
        """Continue with the file that is at the path now."""
        self.close()
        self._finished.append(self._at)
        self._position = None
        try:
            descriptor = open_log(self.path, self._roots)
        except FileNotFoundError:
            # It begins with its first byte once there is one.
            self.restarts[REMOVED] += 1
            self._over, self.size, self._first_read = False, 0, 2**63
            self._anew = True
            return
        self.restarts[ROTATED] += 1
        self._over = False
        self._begin(descriptor, None)

    def _skip_hole(self, data: bytes) -> bool:
        """Skip a hole, which a writer leaves that keeps its offset in a truncated file."""
        if len(data) < _HOLE or data[:_HOLE].strip(b"\0"):
            return False
        offset = self._at.offset
        try:
            end = os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return False
            end = os.fstat(self._fd).st_size
        if end <= offset:
            return False
        self._move(end)
        return True

    def _move(self, offset: int) -> None:
        size = min(FINGERPRINT, offset)
        before = os.pread(self._fd, size, offset - size)
        head = self._at.head or os.pread(self._fd, size, 0)
        self._position = Position(self._at.inode, offset, head, before)

    def _skip_to_line(self, data: bytes) -> bool:
        """Begin with a whole line where the beginning of the file was skipped."""
        if not self._mid_line:
            return False
        end = data.find(b"\n") + 1
        skipped = end or len(data)
        self.skipped += skipped
        self._mid_line = not end
        self._advance(data[:skipped])
        return True

    def _advance(self, data: bytes) -> None:
        inode, offset, head, before = self._at.inode, self._at.offset, self._at.head, self._at.before
        if offset == len(head) < FINGERPRINT:
            head = (head + data[:FINGERPRINT])[:FINGERPRINT]
        before = (before + data[-FINGERPRINT:])[-FINGERPRINT:]
        self._position = Position(inode, offset + len(data), head, before)

    @property
    def _fd(self) -> int:
        if self._descriptor is None:
            raise RuntimeError(f"{self.path}: is not open")
        return self._descriptor

    @property
    def _at(self) -> Position:
        if self._position is None:
            raise RuntimeError(f"{self.path}: was never open")
        return self._position
