"""Open a file below a folder without following a link, and only if it belongs to a given user.

A user who may write the folder cannot make a process with more rights read a file through it.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Without O_NONBLOCK the call would wait for a pipe; a terminal must not become the controlling one.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The same number on every architecture of Linux that Python has packages for.
_OPENAT2 = 437
_RESOLVE_BENEATH, _RESOLVE_NO_SYMLINKS = 0x08, 0x04
# A rename at the same time makes the kernel ask for another try.
_TRIES = 8


def open_beneath(folder: int, name: str, flags: int = READ) -> int:
    """Open `name`, a relative path, below an open folder; return its descriptor.

    Raises:
        OSError: it cannot be opened: ELOOP where a part of it is a link, EXDEV where it leads out of the folder.
    """
    if "/" not in name and name not in ("", ".", ".."):
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    call = _openat2()
    descriptor = None if call is None else call(folder, name, flags | os.O_CLOEXEC)
    return walk_beneath(folder, name, flags) if descriptor is None else descriptor


def walk_beneath(folder: int, name: str, flags: int = READ) -> int:
    """Do what `open_beneath` does by opening one folder after the other, for kernels before Linux 5.6."""
    if name.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        # The kernel's own lookup allows it where it stays inside; no name of ours has it.
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    current = os.open(".", _FOLDER, dir_fd=folder)
    try:
        for part in parts[:-1]:
            try:
                below = os.open(part, _FOLDER, dir_fd=current)
            except NotADirectoryError:
                # Of a link too, with these flags.
                if _is_link(part, current):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
                raise
            os.close(current)
            current = below
        last = parts[-1] if parts else "."
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
    finally:
        os.close(current)


def open_inside(folder: str, path: str, flags: int = READ) -> int:
    """Open `path`, which is absolute and inside the folder, as `open_beneath` does; the folder may be a link.

    Raises:
        OSError: as `open_beneath`, or the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(descriptor, os.path.relpath(path, folder), flags)
    finally:
        os.close(descriptor)


def open_checked(place: int, check: Callable[[os.stat_result], None]) -> int:
    """Open the file of an `O_PATH` descriptor for reading, once `check` has seen its status; return its descriptor.

    Opening alone moves some devices and starts the watchdog, so a path that a user names is first opened with
    `O_PATH`, which does nothing to the file. `place` is closed.

    Raises:
        OSError: it cannot be opened.
        Exception: whatever `check` raises where the status does not allow it.
    """
    try:
        check(os.fstat(place))
        return os.open(f"/proc/self/fd/{place}", READ)
    finally:
        os.close(place)


def read_link(path: str | os.PathLike[str], folder: int | None = None) -> tuple[os.stat_result, str]:
    """Return the status and the target of one and the same link, whatever replaces it meanwhile.

    Args:
        path: of the link.
        folder: an open folder that the path begins at; the current one if None.

    Raises:
        OSError: there is none, or it is no link (EINVAL).
    """
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(link)
        if not stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EINVAL, "is no link", os.fspath(path))
        return status, os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def is_of(status: os.stat_result, owner: int) -> bool:
    """Return whether a file counts as a user's: it is, or it is root's or this process's and open to everybody.

    What root writes into a record, an epilog's `_error` for one, is open to all. A file that is not, moved there out of
    another folder, stays closed.
    """
    mine = status.st_uid == owner
    return mine or (status.st_uid in (0, os.geteuid()) and bool(status.st_mode & stat.S_IROTH))


def _is_link(name: str, folder: int) -> bool:
    try:
        os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


@cache
def _openat2() -> Callable[[int, str, int], int | None] | None:
    """Return the system call; None where the kernel or a filter of system calls does not have it."""
    import ctypes  # noqa: PLC0415  # takes a while, and most processes open no such file

    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    syscall.restype = ctypes.c_long

    def call(folder: int, name: str, flags: int) -> int | None:
        how = struct.pack("=QQQ", flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)
        try:
            path = os.fsencode(name)
        except UnicodeEncodeError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), name) from error
        if b"\0" in path:
            raise FileNotFoundError(errno.ENOENT, "has a NUL in its name", name)
        for _ in range(_TRIES):
            descriptor = int(
                syscall(
                    ctypes.c_long(_OPENAT2),
                    ctypes.c_int(folder),
                    ctypes.c_char_p(path),
                    ctypes.c_char_p(how),
                    ctypes.c_size_t(len(how)),
                )
            )
            if descriptor >= 0:
                return descriptor
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                raise OSError(number, os.strerror(number), name)
        return None

    try:
        probe = call(os.open("/", _FOLDER), ".", os.O_PATH)  # once a process: the root folder stays open
    except OSError:
        return None
    if probe is not None:
        os.close(probe)
    return call
