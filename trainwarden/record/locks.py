"""Locks on files of a run's folder: the owner's, and the one held while a file of several writers is changed."""

# Shell commands load this: pathlib and contextlib are slow to import.
# ruff: noqa: PTH118

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

from trainwarden.record.folder import WRITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.01


def lock_holder(descriptor: int) -> int | None:
    """Return the process that holds a POSIX record lock on an open file; 0 for one of another host, None for none.

    Raises:
        OSError: the file system has no such locks.
    """
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


class WriteLock:
    """The lock of one process, and one thread, to read a file of the record, change it and write it.

    After five seconds, or on a file system without locks, the block is entered without it: a change too many does less
    harm than none. The library does not take it: it keeps all that it writes in memory.
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
            except OSError as error:  # noqa: PERF203  # a lock is polled
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
