"""Read the files of a record only when they have changed, and a log only at its end."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

from trainwarden.beneath import open_beneath, open_checked, read_link
from trainwarden.record.document import Unreadable
from trainwarden.record.folder import LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.core.owned_folder import OwnedFolder

P = ParamSpec("P")
T = TypeVar("T")

# A file that could not be read may be readable later without a change: a mount came back.
RETRY_SECONDS = 30.0
FRESH_SECONDS = 2.0


class CachedFile(Generic[P, T]):
    """The result of `read` for a file, or a folder of replaced files; read again when it or the arguments change.

    Args:
        name: of the file in its folder.
        read: makes the result; called with the folder and the arguments.
    """

    def __init__(self, name: str, read: Callable[Concatenate[OwnedFolder, P], T | Unreadable | None]) -> None:
        self._name = name
        self._read = read
        self._seen: tuple[object, ...] | None = None
        self._value: T | Unreadable | None = None
        self._read_at = 0.0
        self.modified: float | None = None  # Unix seconds, as of the last look

    def get(self, files: OwnedFolder, now: float, *arguments: P.args, **named: P.kwargs) -> T | Unreadable | None:
        """Return what `read` makes of the file with these arguments, None if there is none; `now` is Unix seconds.

        A change that its owner has no budget for in this round is read in a later one.
        """
        try:
            status = files.stat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            self._seen, self._value, self.modified = None, None, None
            return None
        except OSError as error:
            self._seen, self._value, self.modified = None, None, None
            return Unreadable(files.path / self._name, error.strerror or str(error))
        self.modified = status.st_mtime
        # With the time of change, for a change of permissions counts too.
        seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, arguments)
        retry = isinstance(self._value, Unreadable) and abs(now - self._read_at) >= RETRY_SECONDS
        # Times of files are coarse: two changes in quick succession may have the same one.
        fresh = abs(now - status.st_mtime) < FRESH_SECONDS
        if (seen != self._seen or retry or fresh) and files.may_read(status.st_size):
            # The status was read first: a file replaced in between is read once more, never missed.
            self._value, self._seen, self._read_at = self._read(files, *arguments, **named), seen, now
        return self._value


def last_line(files: OwnedFolder, limit: int = 16384) -> str | None:
    """Return the last line of a run's log that is not empty, as far as its last `limit` bytes hold it.

    A carriage return, as of a progress bar, ends a line too. None if there is no such line. One symbolic link is
    followed if link and target are those of the record's owner: the exporter may read files that this user may not.
    """
    tail = _read_tail(files, limit + 1)
    lines = tail.replace(b"\r", b"\n").split(b"\n")
    if len(tail) > limit:
        # The tail begins within a line; its first word may be half a secret.
        lines[0] = lines[0].partition(b" ")[2]
    return next((line.decode("utf-8", "replace") for line in reversed(lines) if line.strip()), None)


def _read_tail(files: OwnedFolder, size: int) -> bytes:
    try:
        descriptor = _open_log(files)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _open_log(files: OwnedFolder) -> int:
    try:
        return files.open(LOG)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    folder, _, name = LOG.rpartition("/")
    parent = open_beneath(files.descriptor, folder, os.O_PATH | os.O_DIRECTORY)
    try:
        link, target = read_link(name, parent)
        if link.st_uid != files.owner:
            raise PermissionError(errno.EACCES, "is another user's link", f"{files.path}/{LOG}")
        place = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)

    def check(status: os.stat_result) -> None:
        # What root lets everybody read may be in a folder that it lets nobody enter.
        if not stat.S_ISREG(status.st_mode) or status.st_uid != files.owner:
            raise PermissionError(errno.EACCES, "is a link to another user's file", f"{files.path}/{LOG}")

    return open_checked(place, check)
