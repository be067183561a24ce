"""`superseded.<attempt>.json`: an attempt that still lives although a newer one owns the record.

It writes nothing else. A checkpoint that it saves is named here, and is none to resume from: it may have overwritten
one of the newer attempt's.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainwarden.record.document import JsonObject, read_json
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


def write_superseded(folder: str | os.PathLike[str], document: Superseded) -> None:
    """Write the file of an attempt.

    Raises:
        OSError: the folder cannot be written.
    """
    replace_file(Path(folder, f"superseded.{document.attempt}.json"), encode(document.to_json()))


def read_superseded(folder: str | os.PathLike[str]) -> list[tuple[Superseded, float]]:
    """Return what such attempts have written, each with the time of its file, Unix seconds."""
    found = []
    for path in sorted(Path(folder).glob("superseded.*.json"))[-_MAX_FILES:]:
        source = read_json(path)
        if isinstance(source, JsonObject) and source.integer("attempt") is not None:
            found.append((Superseded.from_json(source), source.modified))
    return found


def living_rival(folder: str | os.PathLike[str], now: float) -> Superseded | None:
    """Return an older attempt that lives beside the one that owns the record; None if there is none.

    By the times of files, of one clock: its file is as new as the record of the other, and was written lately.
    """
    try:
        owner = Path(folder, METADATA).stat().st_mtime
    except OSError:
        return None
    for document, modified in read_superseded(folder):
        if document.status == "running" and modified >= owner - _FRESH_SECONDS and now - modified < _LATELY_SECONDS:
            return document
    return None


def overwritten(folder: str | os.PathLike[str], checkpoint: Checkpoint) -> Superseded | None:
    """Return the superseded attempt that saved to the place of a checkpoint after that was recorded; None else."""
    for document, _ in read_superseded(folder):
        for saved in document.checkpoints:
            if saved.path == checkpoint.path and (saved.time or 0.0) >= (checkpoint.time or 0.0):
                return document
    return None
