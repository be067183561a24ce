"""Locks on files of a run's folder: the owner's, and the one held while a file of several writers is changed.

One process that writes many records holds a lock on each by its name, all of them in one file.
"""

# Shell commands load this: pathlib and contextlib are slow to import.
# ruff: noqa: PTH103, PTH118, PTH120

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

from trainwarden.record.folder import WRITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.01
_TAKEN = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class NoLocks(OSError):
    """The file system has no locks."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another open file has the lock.

    The lock belongs to the open file, not to the process as a POSIX record lock does, which is dropped when the process
    closes any other descriptor of the file. It conflicts with such a lock of another process all the same. A child that
    was forked shares it, and has to close the descriptor.

    Raises:
        NoLocks: the file system has none.
        OSError: it failed otherwise.
    """
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return _attempt(
        lambda: fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request),
        lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB),
    )


def unlock(descriptor: int) -> None:
    """Release the lock for all processes that share the open file.

    Raises:
        OSError: it failed.
    """
    request = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
    _attempt(
        lambda: fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request), lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
    )


def is_locked(descriptor: int) -> bool:
    """Return whether another open file has the lock on the same file.

    Raises:
        NoLocks: the file system has none.
        OSError: it failed otherwise.
    """
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

    def ask() -> None:
        if _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request))[0] != fcntl.F_UNLCK:
            raise BlockingIOError(errno.EAGAIN, "locked")

    # The second lock is released when the descriptor is closed.
    return not _attempt(ask, lambda: fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB))


def _attempt(*ways: Callable[[], object]) -> bool:
    """Call the first of `ways` that the file system has; return whether it succeeded or found the lock taken."""
    for way in ways:
        try:
            way()
        except OSError as error:  # noqa: PERF203  # two ways
            if error.errno in _TAKEN:
                return False
            if error.errno not in _UNSUPPORTED:
                raise
        else:
            return True
    raise NoLocks(errno.ENOLCK, "the file system has no locks")


class NamedLocks:
    """Locks on names, each a byte of one file: one descriptor, however many there are. They end with the process.

    Args:
        path: of the file, which belongs to this user; it is made where it is missing, and its folder as well.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, name: str) -> bool:
        """Lock a name; False if another process has it. Where no lock can be had, nobody is kept out."""
        try:
            if self._descriptor is None:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                self._descriptor = _own_file(self._path)
        except OSError:
            return True
        return self._set(self._descriptor, fcntl.F_WRLCK, name)

    def release(self, name: str) -> None:
        """Release a name."""
        if self._descriptor is not None:
            self._set(self._descriptor, fcntl.F_UNLCK, name)

    def _set(self, descriptor: int, kind: int, name: str) -> bool:
        request = _FLOCK.pack(kind, os.SEEK_SET, _place_of(name), 1, 0)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            return error.errno not in _TAKEN
        return True


def _own_file(path: str | os.PathLike[str]) -> int:
    """Open a file for locks; raise OSError, also where it is another user's, who could keep it locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), os.fspath(path))
    return descriptor


def _place_of(name: str) -> int:
    from hashlib import sha256  # noqa: PLC0415  # shell commands load this module

    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 2


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
                if error.errno not in _TAKEN:
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
