"""Read the files of a record only when they have changed, and a log only at its end."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from trainwarden.record.document import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

P = ParamSpec("P")
T = TypeVar("T")

# A file that could not be read may be readable later without a change: a mount came back.
RETRY_SECONDS = 30.0
FRESH_SECONDS = 2.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class CachedFile(Generic[P, T]):
    """The result of `read` for a file, or a folder of replaced files; read again when it or the arguments change."""

    def __init__(self, path: Path, read: Callable[P, T | Unreadable | None]) -> None:
        self._path = path
        self._read = read
        self._seen: tuple[object, ...] | None = None
        self._value: T | Unreadable | None = None
        self._read_at = 0.0
        self.modified: float | None = None  # Unix seconds, as of the last look

    def get(self, now: float, *arguments: P.args, **named: P.kwargs) -> T | Unreadable | None:
        """Return what `read` makes of the file with these arguments, None if there is none; `now` is Unix seconds."""
        try:
            status = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            self._seen, self._value, self.modified = None, None, None
            return None
        except OSError as error:
            self._seen, self._value, self.modified = None, None, None
            return Unreadable(self._path, error.strerror or str(error))
        self.modified = status.st_mtime
        # With the time of change, for a change of permissions counts too.
        seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, arguments)
        retry = isinstance(self._value, Unreadable) and now - self._read_at >= RETRY_SECONDS
        # Times of files are coarse: two changes in quick succession may have the same one.
        fresh = abs(now - status.st_mtime) < FRESH_SECONDS
        if seen != self._seen or retry or fresh:
            # The status was read first: a file replaced in between is read once more, never missed.
            self._value, self._seen, self._read_at = self._read(*arguments, **named), seen, now
        return self._value


def last_line(path: Path, limit: int = 16384) -> str | None:
    """Return the last line of a log that is not empty, as far as its last `limit` bytes hold it.

    A carriage return, as of a progress bar, ends a line too. None if there is no such line. One symbolic link is
    followed if link and target have the same owner: the exporter may read files that the link's owner may not.
    """
    tail = _read_tail(path, limit + 1)
    lines = tail.replace(b"\r", b"\n").split(b"\n")
    if len(tail) > limit:
        # The tail begins within a line; its first word may be half a secret.
        lines[0] = lines[0].partition(b" ")[2]
    return next((line.decode("utf-8", "replace") for line in reversed(lines) if line.strip()), None)


def _read_tail(path: Path, size: int) -> bytes:
    try:
        descriptor = _open_log(path)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(descriptor, size, max(0, status.st_size - size))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _open_log(path: Path) -> int:
    try:
        return os.open(path, _READ)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    # Held open, the link cannot be replaced between reading its owner and reading its target.
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        maker = os.fstat(link).st_uid
        target = path.parent / os.readlink("", dir_fd=link)
    finally:
        os.close(link)
    descriptor = os.open(target, _READ)
    if os.fstat(descriptor).st_uid != maker:
        os.close(descriptor)
        raise PermissionError(errno.EACCES, "is a link to another user's file", path)
    return descriptor
