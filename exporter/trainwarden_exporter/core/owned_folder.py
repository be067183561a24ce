"""A folder of a user, from which only this user's own files are read, whatever the exporter may read besides."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden.beneath import READ, is_of, open_beneath, read_link
from trainwarden.capabilities import reading_any
from trainwarden.record.document import FileContent, Unreadable, read_open
from trainwarden.record.folder import METADATA, PROGRESS

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class ReadBudget:
    """How many bytes of each user's files are read in one round, or how long it takes in microseconds.

    Args:
        limit: of each user.
        limit_of_all: of all users together; None for any.

    Attributes:
        before: what each user took in the round before.
        total: what all users took in this round.
    """

    def __init__(self, limit: int, limit_of_all: int | None = None) -> None:
        self._limit, self._limit_of_all = limit, limit_of_all
        self._taken: Counter[int] = Counter()
        self.total = 0
        self.before: Counter[int] = Counter()

    def begin(self) -> None:
        """Begin a round."""
        self.before, self._taken, self.total = self._taken, Counter(), 0

    def take(self, owner: int, size: int) -> bool:
        """Take bytes; return False if the budget is spent. The last ones may exceed it."""
        if self._taken[owner] >= self._limit or (self._limit_of_all is not None and self.total >= self._limit_of_all):
            return False
        self._taken[owner] += size
        self.total += size
        return True


class NotTheOwners(PermissionError):
    """A file of another user than the folder's."""

    def __init__(self, path: Path | str, uid: int) -> None:
        super().__init__(errno.EACCES, f"belongs to another user (uid {uid}) than the run's folder", str(path))


class OwnedFolder:
    """An open folder and the user whose files count in it.

    That is the folder's owner; in a folder of root's, which root made for a user, the writer of its record.

    Attributes:
        path: of the folder, for messages.
        descriptor: of the folder; closed at the end of the context.
        status: of the folder.
        owner: uid of the user.
        postponed: a file has changed that there was no budget to read.
    """

    def __init__(self, path: Path, descriptor: int, budget: ReadBudget | None = None) -> None:
        self.path = path
        self.descriptor = descriptor
        self.status = os.fstat(descriptor)
        self.owner = self.status.st_uid or self._writer()
        self.postponed = False
        self._budget = budget

    @classmethod
    def opened(cls, path: Path, budget: ReadBudget | None = None) -> OwnedFolder:
        """Return the folder, open until its context ends; `budget` bounds what is read of its owner's files.

        A link to it is followed if the owner of its target made it, or root, or the user that the exporter runs as.

        Raises:
            FileNotFoundError: it is no folder, or a link of another user.
            OSError: it cannot be opened.
        """
        descriptor = _open_folder(path)
        try:
            return cls(path, descriptor, budget)
        except BaseException:
            os.close(descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def as_path(self) -> str:
        """A path to the open folder, whatever is at `path` now, while the context lasts."""
        return f"/proc/self/fd/{self.descriptor}"

    def path_of(self, name: str) -> str:
        """The path of a name right in the folder, for messages; a `Path` takes as long to make as a file to look at."""
        return f"{self.path}/{name}"

    def stat(self, name: str) -> os.stat_result:
        """Return the status of a name right in the folder, of a link its own; raise `OSError`."""
        with reading_any():
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def open_folder(self, name: str) -> int:
        """Open a folder right in this one to list it; return its descriptor.

        By it, to list it and to look at what it holds takes less time than by a path through procfs.

        Raises:
            NotADirectoryError: it is no folder, or a link.
            OSError: it cannot be opened.
        """
        with reading_any():
            return open_beneath(self.descriptor, name, os.O_RDONLY | os.O_DIRECTORY)

    def may_read(self, size: int) -> bool:
        """Take bytes from the owner's budget; return False if nothing is left of it."""
        if self._budget is None or self._budget.take(self.owner, size):
            return True
        self.postponed = True
        return False

    def open(self, name: str) -> int:
        """Open a plain file of the owner's below the folder for reading; return its descriptor.

        Raises:
            NotTheOwners: it is another user's.
            OSError: it cannot be opened, is no plain file, or a part of its path is a link (ELOOP).
        """
        return self._open(name)[0]

    def _open(self, name: str) -> tuple[int, os.stat_result]:
        with reading_any():
            descriptor = open_beneath(self.descriptor, name, READ)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a plain file", f"{self.path}/{name}")
            if not is_of(status, self.owner):
                raise NotTheOwners(f"{self.path}/{name}", status.st_uid)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status

    def read(self, name: str, limit: int) -> FileContent | Unreadable | None:
        """Return the content of a file of at most `limit` bytes below the folder; None if there is none."""
        try:
            descriptor, status = self._open(name)
            try:
                data = read_open(descriptor, status.st_size, limit + 1)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            reason = "is a symbolic link, not a file" if is_link else error.strerror or str(error)
            return Unreadable(self.path / name, reason)
        if len(data) > limit:
            return Unreadable(self.path / name, f"is larger than {limit} bytes")
        return FileContent(data, status.st_mtime)

    def _writer(self) -> int:
        for name in (METADATA, PROGRESS):
            with contextlib.suppress(OSError):
                return self.stat(name).st_uid
        return 0


def _open_folder(path: Path) -> int:
    try:
        return os.open(path, _FOLDER | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
    try:
        link, target = read_link(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise FileNotFoundError(errno.ENOTDIR, "is no folder", str(path)) from None
    try:
        descriptor = os.open(path.parent / target, _FOLDER)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise FileNotFoundError(error.errno, "is a link that leads to no folder", str(path)) from error
    if link.st_uid not in (os.fstat(descriptor).st_uid, 0, os.geteuid()):
        os.close(descriptor)
        raise FileNotFoundError(errno.EACCES, "is a link to another user's folder", str(path))
    return descriptor
