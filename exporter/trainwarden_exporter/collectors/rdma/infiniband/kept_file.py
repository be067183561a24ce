"""One small file of sysfs that is read again and again: opened once, read in place."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

# A counter or a line of text; what is longer is none.
LONGEST = 256
# A pipe in place of a file must not be waited for.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_GONE = frozenset((errno.ENODEV, errno.ESTALE, errno.ENOENT, errno.EBADF))
_WANTED_FILES = 8192


def allow_many_files() -> None:
    """Raise the number of files that this process may hold, as far as it may: 32 EFA devices have 1100 counters."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def kept_below() -> int:
    """Return the first descriptor that is not kept between two reads: half of all are for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft // 2


class KeptFile:
    """A file at `path`; `below` is the first descriptor that is not kept. Not for several threads at once.

    `call` says what a thread does that reads it. `said` is for the reader: what it said last, and what that means.
    """

    __slots__ = ("_below", "_descriptor", "call", "path", "said")

    def __init__(self, path: str, below: int, call: str = "read") -> None:
        self.path = path
        self.call = call
        self.said: tuple[bytes, object] | None = None
        self._below = below
        self._descriptor: int | None = None

    def read(self) -> bytes:
        """Return what the file says now; raises `OSError`."""
        if self._descriptor is not None:
            try:
                return os.pread(self._descriptor, LONGEST, 0)
            except OSError as error:
                self.close()
                if error.errno not in _GONE:
                    raise
        return self._opened()

    def close(self) -> None:
        """Let it go."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _opened(self) -> bytes:
        descriptor = os.open(self.path, _READ)
        keep = False
        try:
            data = os.pread(descriptor, LONGEST, 0)
            keep = descriptor < self._below
        finally:
            if keep:
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        return data
