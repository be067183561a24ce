"""One more line in the journal of a run, by a process other than its training."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from trainwarden.beneath import open_beneath
from trainwarden.record.lines import MAX_LINE

if TYPE_CHECKING:
    from pathlib import Path

# As large as its own writer lets a journal become, and a line more.
_MAX_BYTES = 4 * 2**20 + MAX_LINE
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def append_line(folder: Path, name: str, line: bytes, mark: str) -> None:
    """Append a line in one write, unless the end of the file holds `mark` already.

    A journal is never created: the run's user could not write a file that belongs to another. It must be the owner's of
    the folder, and reachable by no other name.

    Args:
        folder: of the run.
        name: of the journal in it.
        line: with its line end.
        mark: a text in the line that no other line has.

    Raises:
        OSError: it cannot be opened or written; nothing was written.
    """
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        descriptor = open_beneath(place, name, _FLAGS)
        try:
            _append(descriptor, os.fstat(place).st_uid, line, mark)
        finally:
            os.close(descriptor)
    finally:
        os.close(place)


def _append(descriptor: int, owner: int, line: bytes, mark: str) -> None:
    status = os.fstat(descriptor)
    size = status.st_size
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != owner:
        raise OSError(errno.EPERM, "it is no plain file of the run's owner")
    if size > _MAX_BYTES:
        raise OSError(errno.EPERM, "it is full, and its run does not rotate it")
    end = os.pread(descriptor, min(size, MAX_LINE), max(0, size - MAX_LINE))
    if mark.encode() in end:
        return  # a process before this one ended between the line and the note that it is written
    # The writer before may have been killed in the middle of a line.
    whole = line if not end or end.endswith(b"\n") else b"\n" + line
    written = os.write(descriptor, whole)
    if written < len(whole):
        if os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
