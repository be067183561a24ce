"""A file that is held open for as long as a run lasts, in a process whose other files are the user's."""

from __future__ import annotations

import contextlib
import fcntl
import os

# A program that closes files which it did not open, as a daemon does, reuses the lowest numbers first.
_LOWEST = 512


class HeldDescriptor:
    """An open descriptor whose number may come to mean another file: the program may close it and open its own.

    Args:
        descriptor: of the file; it is moved to a high number where that is possible.

    Attributes:
        number: of the open file.
    """

    def __init__(self, descriptor: int) -> None:
        self.number = _moved_up(descriptor)
        self._name = _name(self.number)
        self._identity = _identity(self.number)

    def is_open(self) -> bool:
        """Return whether the number still means the same file; without a call to a file server in most cases."""
        name = _name(self.number)
        if name is not None and name == self._name:
            return True
        # The file may have been renamed or deleted.
        if not self._is_same():
            return False
        self._name = name
        return True

    def close(self) -> None:
        """Close the file, unless the number means another one by now."""
        if self._is_same():
            with contextlib.suppress(OSError):
                os.close(self.number)
        self._identity = None

    def _is_same(self) -> bool:
        return self._identity is not None and _identity(self.number) == self._identity


def _moved_up(descriptor: int) -> int:
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
    except OSError:
        return descriptor
    os.close(descriptor)
    return moved


def _name(descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # a link that is no path
    except OSError:
        return None


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
