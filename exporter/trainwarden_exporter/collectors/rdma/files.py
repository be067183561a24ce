"""The files of RDMA devices in sysfs: small, many, read again and again, any of them hostile or gone."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import resource
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainwarden.redaction import plain
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
log = logging.getLogger(__name__)

# No counter and no line of text is longer.
LONGEST = 256
# Do not wait for a pipe in place of a file.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_GONE = frozenset((errno.ENODEV, errno.ESTALE, errno.ENOENT, errno.EBADF))
_WANTED_FILES = 8192
# In one folder; real ones hold about forty counters, a switch 128 ports.
MAX_FILES = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HIGHEST = 2**64 - 1
_DIGITS = 20


def allow_many_files() -> None:
    """Raise this process's limit of open files, as far as permitted: 32 EFA devices have 1100 counters."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def kept_below() -> int:
    """Return the first descriptor that is not kept open between two reads: half of the limit is left for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft // 2


class KeptFile:
    """A small file of sysfs, opened once and read in place. Not for several threads at once.

    Kept open, a sample of 32 EFA devices takes 13 ms, less than half of what opening each file again takes.

    Args:
        path: of the file.
        below: the first descriptor that is not kept open.
        call: what a thread that reads it is doing, see `sampling.calls`.

    Attributes:
        parsed: for the caller: the bytes that it read last, and the value parsed from them.
    """

    __slots__ = ("_below", "_descriptor", "call", "parsed", "path")

    def __init__(self, path: str, below: int, call: str = "read") -> None:
        self.path = path
        self.call = call
        self.parsed: tuple[bytes, object] | None = None
        self._below = below
        self._descriptor: int | None = None

    def read(self) -> bytes:
        """Return the content, at most `LONGEST` bytes; raise `OSError`."""
        if self._descriptor is not None:
            try:
                return os.pread(self._descriptor, LONGEST, 0)
            except OSError as error:
                self.close()
                if error.errno not in _GONE:
                    raise
        return self._open_and_read()

    def close(self) -> None:
        """Close the descriptor, if one is kept."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _open_and_read(self) -> bytes:
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


class DeviceFiles:
    """The files below `path`, a device of /sys/class/infiniband; a file that cannot be used costs only itself.

    Used by the one thread that samples the device, inside `with`; another thread may `close` it at any time.

    Attributes:
        errors: reads that returned nothing usable.
        changed: whether anything differs from the sample before.
    """

    def __init__(self, path: str, below: int) -> None:
        self.path = path
        self.errors = 0
        self.changed = True
        self._below = below
        self._files: dict[str, KeptFile] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._broken: set[str] = set()
        self._identity: tuple[int, int] | None = None
        self._stale = False
        self._lock = threading.Lock()
        self._closing = False

    def __enter__(self) -> DeviceFiles:
        enter("the sample before")
        self._lock.acquire()
        try:
            enter("stat")
            status = Path(self.path).stat()
        except BaseException:
            self._forget()
            self._lock.release()
            raise
        identity = status.st_dev, status.st_ino
        self.changed = self._stale or identity != self._identity
        if self.changed:
            self._forget()
            self._identity = identity
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        # What was read in a failed sample must be read, and exported, again.
        if self._closing or kind is not None:
            self._forget()
        self._lock.release()

    def close(self) -> None:
        """Close every file: now, or at the end of the sample that is being taken."""
        self._closing = True
        if self._lock.acquire(timeout=0.1):
            self._forget()
            self._lock.release()

    @property
    def listed(self) -> bool:
        """Whether a folder has been listed since the device appeared, or reappeared as another one."""
        return bool(self._names)

    def list_again(self) -> None:
        """Have all folders listed anew in the next sample."""
        self._stale = True

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where there is no folder. Listed once while the device stays."""
        known = self._names.get(folder)
        if known is None:
            enter(f"list {folder}")
            try:
                entries = list(Path(self.path, folder).iterdir())
            except OSError as error:
                self._note(folder, error, absent=True)
                entries = []
            else:
                self._broken.discard(folder)
            found = sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
            known = self._names[folder] = tuple(found[:MAX_FILES])
        return known

    def counter(self, file: str) -> int | None:
        """Return a counter; None and one more error where it cannot be read, None alone for "N/A"."""
        return self._parsed(file, _count, absent=False)

    def text(self, file: str, parse: Callable[[str], T]) -> T | None:
        """Return a line of text as parsed by `parse`; None where there is no such file, which is no error.

        None and one more error if it cannot be read or `parse` raises `ValueError`. A file has one `parse`.
        """
        return self._parsed(file, lambda data: parse(plain(data.decode("utf-8", "replace"))), absent=True)

    def _parsed(self, file: str, parse: Callable[[bytes], T | None], *, absent: bool) -> T | None:
        """Return the value of a file; parse only content that changed, for most does not."""
        kept = self._files.get(file)
        if kept is None:
            kept = self._files[file] = KeptFile(f"{self.path}/{file}", self._below, f"read {file}")
        enter(kept.call)
        try:
            data = kept.read()
            if kept.parsed is not None and kept.parsed[0] == data:
                return kept.parsed[1]  # type: ignore[return-value]  # of this file, and of this parse
            value = parse(data)
        except (OSError, ValueError) as error:
            self.changed = self.changed or kept.parsed is not None
            kept.parsed = None
            self._note(file, error, absent=absent)
            return None
        kept.parsed = data, value
        self.changed = True
        self._broken.discard(file)
        return value

    def _note(self, file: str, error: OSError | ValueError, *, absent: bool) -> None:
        if isinstance(error, FileNotFoundError):
            self._stale = self._stale or not absent  # a listed file is gone: list again
            if absent:
                return
        self.errors += 1
        self.changed = True
        if file not in self._broken:
            self._broken.add(file)
            why = error.strerror if isinstance(error, OSError) else str(error)
            log.warning("%s/%s: %s", self.path, file, why)

    def _forget(self) -> None:
        for file in self._files.values():
            file.close()
        self._files, self._names, self._identity = {}, {}, None
        self._stale = self._closing = False


def _count(data: bytes) -> int | None:
    text = data.strip()
    if text.startswith(b"N/A"):
        return None
    if not text.isdigit() or len(text) > _DIGITS or int(text) > _HIGHEST:
        raise ValueError(f"{text[:40]!r} is no counter, expected a whole number of 64 bits")
    return int(text)
