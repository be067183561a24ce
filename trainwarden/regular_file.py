"""Read a file that another process may have replaced by a pipe or a device, and notice when files change."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Of each file its time of change in ns, size in bytes and inode; None for one that is missing.
Stamp = tuple[tuple[int, int, int] | None, ...]


def read_regular_file(path: Path, limit: int) -> bytes:
    """Return the first `limit` bytes of a file, without ever waiting for a writer.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        return file.read(limit)


def stamp_of(files: Iterable[Path]) -> Stamp:
    """Return what differs once one of the files has been changed or replaced."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
