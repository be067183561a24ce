"""The files of one RDMA device: which there are and what they say; one that cannot be used costs only itself."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainwarden_exporter.collectors.rdma.infiniband.kept_file import KeptFile
from trainwarden_exporter.core.redaction import plain
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
log = logging.getLogger(__name__)

# Of one folder; real ones hold about forty counters, a switch 128 ports.
MAX_FILES = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HIGHEST = 2**64 - 1
_DIGITS = 20


class DeviceFiles:
    """The files below `path`, a device of /sys/class/infiniband.

    Used by the one thread that samples the device, inside `with`; another may `close` it at any time.

    Attributes:
        errors: how many reads brought nothing that can be used.
        changed: something is not as it was in the sample before.
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
        self._unwanted = False

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
        # What was read and not told must not count as told.
        if self._unwanted or kind is not None:
            self._forget()
        self._lock.release()

    def close(self) -> None:
        """Let go of every file: now, or when the sample that is being taken ends."""
        self._unwanted = True
        if self._lock.acquire(timeout=0.1):
            self._forget()
            self._lock.release()

    @property
    def listed(self) -> bool:
        """Something was listed since the device came, or came back; before, what there is may be another."""
        return bool(self._names)

    def names(self, folder: str) -> tuple[str, ...]:
        """Return what the folder holds, in order; nothing where there is none. Listed once while the device stays."""
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
        """Return a counter; None, and one error more, where there is none. "N/A" is no error."""
        return self._said(file, _count, absent=False)

    def text(self, file: str, parse: Callable[[str], T]) -> T | None:
        """Return what `parse` makes of a line of text, and None where there is no such file, which is no error.

        None, and one error more, if it cannot be read or `parse` raises `ValueError`. A file has one `parse`.
        """
        return self._said(file, lambda data: parse(plain(data.decode("utf-8", "replace"))), absent=True)

    def _said(self, file: str, parse: Callable[[bytes], T | None], *, absent: bool) -> T | None:
        """Return what a file says; most say what they said before."""
        kept = self._files.get(file)
        if kept is None:
            kept = self._files[file] = KeptFile(f"{self.path}/{file}", self._below, f"read {file}")
        enter(kept.call)
        try:
            data = kept.read()
            if kept.said is not None and kept.said[0] == data:
                return kept.said[1]  # type: ignore[return-value]  # of this file, and of this parse
            value = parse(data)
        except (OSError, ValueError) as error:
            self.changed = self.changed or kept.said is not None
            kept.said = None
            self._note(file, error, absent=absent)
            return None
        kept.said = data, value
        self.changed = True
        self._broken.discard(file)
        return value

    def _note(self, file: str, error: OSError | ValueError, *, absent: bool) -> None:
        if isinstance(error, FileNotFoundError):
            self._stale = self._stale or not absent  # what is listed has gone: list anew
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
        self._stale = self._unwanted = False


def _count(data: bytes) -> int | None:
    text = data.strip()
    if text.startswith(b"N/A"):
        return None
    if not text.isdigit() or len(text) > _DIGITS or int(text) > _HIGHEST:
        raise ValueError(f"{text[:40]!r} is no counter, expected a whole number of 64 bits")
    return int(text)
