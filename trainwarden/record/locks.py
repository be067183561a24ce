"""Locks on files of a run's folder: who holds one, and the turn to change what several processes write."""

# pathlib and contextlib are slow to import, and shell commands need this.
# ruff: noqa: PTH118

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

from trainwarden.record.place import WRITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.01


def lock_holder(descriptor: int) -> int | None:
    """The process that holds a POSIX record lock on an open file; 0 if it is not known here, None if there is none.

    Raises:
        OSError: the file system cannot tell.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


class writing:  # noqa: N801  # reads as a verb where it is used: with writing(folder)
    """The turn to read a file of the record, change it and write it: one process, and one thread, at a time.

    Who waits for it in vain for five seconds goes on without: a word too many does less harm than none. So does who is
    on a file system without locks. The library does not take turns: it knows all it writes by heart.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, WRITING)
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError:
            return
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # noqa: PERF203  # it waits anyway
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    return
                time.sleep(_POLL_SECONDS)
            else:
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
