"""`superseded.<attempt>.json`: an attempt that still lives although a newer one owns the record.

It writes nothing else. A checkpoint that it saves is named here, and is none to resume from: it may have overwritten
one of the newer attempt's.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainwarden.record.document import FileContent, JsonObject, Unreadable, parse_json, read_json
from trainwarden.record.folder import METADATA, encode, replace_file
from trainwarden.record.progress import Checkpoint
from trainwarden.record.schema import INTEGER, TEXT, TIME, RecordDocument, parts, required

_FRESH_SECONDS = 30.0
_LATELY_SECONDS = 120.0
_MAX_FILES = 16


class Superseded(RecordDocument):
    """The attempt, its process, and the last checkpoints that it saved since. `status` is running or ended."""

    attempt: int = required(INTEGER)
    attempt_key: str | None = TEXT
    host: str | None = TEXT
    pid: int | None = INTEGER
    time: float | None = TIME
    step: int | None = INTEGER
    status: str | None = TEXT
    checkpoints: tuple[Checkpoint, ...] = parts(Checkpoint)


def superseded_file(attempt: int) -> str:
    """Return the name of the file of an attempt."""
    return f"superseded.{attempt}.json"


def parse_superseded(content: FileContent, path: str | os.PathLike[str]) -> Superseded | Unreadable | None:
    """Return the document whose content came from elsewhere; None if it names no attempt."""
    source = parse_json(content, path)
    if not isinstance(source, JsonObject):
        return source
    return None if source.integer("attempt") is None else Superseded.from_json(source)


def write_superseded(folder: str | os.PathLike[str], document: Superseded) -> None:
    """Write the file of an attempt.

    Raises:
        OSError: the folder cannot be written.
    """
    replace_file(Path(folder, superseded_file(document.attempt)), encode(document.to_json()))


def read_superseded(folder: str | os.PathLike[str]) -> list[tuple[Superseded, float]]:
    """Return what such attempts have written, each with the time of its file, Unix seconds."""
    found = []
    for path in sorted(Path(folder).glob("superseded.*.json"))[-_MAX_FILES:]:
        source = read_json(path)
        if isinstance(source, JsonObject) and source.integer("attempt") is not None:
            found.append((Superseded.from_json(source), source.modified))
    return found


def living_rival(folder: str | os.PathLike[str], now: float) -> Superseded | None:
    """Return an older attempt that lives beside the one that owns the record; None if there is none."""
    try:
        owner = Path(folder, METADATA).stat().st_mtime
    except OSError:
        return None
    for document, modified in read_superseded(folder):
        if lives_beside(document, modified, owner, now):
            return document
    return None


def lives_beside(document: Superseded, modified: float, owner: float, now: float) -> bool:
    """Return whether a superseded attempt lives: its file is as new as the owner's record, and was written lately.

    Args:
        document: of the superseded attempt.
        modified: when its file was written, Unix seconds.
        owner: when the record of the present attempt was written, by the same clock.
        now: Unix seconds.
    """
    return document.status == "running" and modified >= owner - _FRESH_SECONDS and now - modified < _LATELY_SECONDS


def overwritten(folder: str | os.PathLike[str], checkpoint: Checkpoint) -> Superseded | None:
    """Return the superseded attempt that saved to the place of a checkpoint after that was recorded; None else."""
    for document, _ in read_superseded(folder):
        for saved in document.checkpoints:
            if saved.path == checkpoint.path and (saved.time or 0.0) >= (checkpoint.time or 0.0):
                return document
    return None
