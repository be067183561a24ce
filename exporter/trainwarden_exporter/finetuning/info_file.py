"""The file or folder in which a training describes itself: read again only when it changed."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import METADATA, PROGRESS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES = 32 * 2**20
MAX_LOG_BYTES = 2**20
# The files of a folder that is given instead of a file; the first that exists is read.
NAMES = ("training_info.json", "trainer_log.jsonl", "trainer_state.json")
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
# File systems note times in steps, so of what changed just now the next change may look the same.
FRESH_SECONDS = 2.0


class UnusableInfoFile(Exception):
    """The file has no content of a known form; the message names the reason."""


def is_run_record(path: Path) -> bool:
    """Return whether this is the folder of a run record."""
    try:
        return (path / METADATA).exists() or (path / PROGRESS).exists()
    except OSError:  # the read fails as well, and reports it
        return False


def resolve_info_path(path: Path) -> Path:
    """Return the file to read: the path itself, or the first of `NAMES` in a folder; raise `OSError`."""
    if not path.is_dir():
        return path
    for name in NAMES:
        if (path / name).exists():
            return path / name
    with os.scandir(path) as entries:
        steps = [int(found[1]) for entry in entries if (found := _CHECKPOINT.fullmatch(entry.name))]
    return path / f"checkpoint-{max(steps)}" / "trainer_state.json" if steps else path / NAMES[0]


class TrainingInfoFile:
    """One such file or folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[object, ...] | None = None
        self.modified: float | None = None

    def changed(self) -> Mapping[str, Any] | None:
        """Return its JSON object if it may have changed since it was last read, else None; a list becomes a history.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it cannot be read.
            UnusableInfoFile: it has no content of a known form.
        """
        path = resolve_info_path(self._path)
        # Do not wait for the writer of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnusableInfoFile(f"{path}: is not a plain file")
            seen = (path, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
            if seen == self._seen and abs(time.time() - status.st_mtime) >= FRESH_SECONDS:
                return None
            self._seen = None
            is_log = path.suffix == ".jsonl"
            if is_log:
                file.seek(max(0, status.st_size - MAX_LOG_BYTES))
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UnusableInfoFile(f"{path}: is larger than {MAX_BYTES} bytes")
        document = _lines(path, data) if is_log else _document(path, data)
        self._seen, self.modified = seen, status.st_mtime
        return document


def _document(path: Path, data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnusableInfoFile(f"{path}: " + (f"is not JSON: {error}" if data else "is empty")) from error
    if isinstance(document, list):
        return {"log_history": document}
    if not isinstance(document, dict):
        raise UnusableInfoFile(
            f"{path}: holds a JSON {type(document).__name__}, expected an object or a list of objects"
        )
    return document


def _lines(path: Path, data: bytes) -> Mapping[str, Any]:
    """Return the objects of a log, one a line; the first line may be cut, the last half-written."""
    found = []
    for line in data.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            found.append(entry)
    if not found:
        raise UnusableInfoFile(f"{path}: holds no line that is a JSON object")
    return {"log_history": found}
