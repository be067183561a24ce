"""`resume.json`: the checkpoint that rank 0 chose for an attempt to resume from, which all its ranks obey."""

from __future__ import annotations

import os

from trainwarden.record.document import FileContent, JsonObject, Unreadable, parse_json, read_json
from trainwarden.record.folder import RESUME
from trainwarden.record.schema import INTEGER, RAW_TEXT, TEXT, TIME, RecordDocument, read_part, required


class ResumeChoice(RecordDocument):
    """Rank 0's choice: `path` is None where the attempt starts from the beginning.

    `size_bytes` is that of the file or folder as rank 0 sees it, None where it could not be measured. `host`, `pid` and
    `process_start`, in clock ticks since boot, are of rank 0's process. `trust`: what it took for complete.
    """

    attempt_key: str = required(TEXT)
    path: str | None = RAW_TEXT
    step: int | None = INTEGER
    size_bytes: int | None = INTEGER
    time: float | None = TIME
    host: str | None = TEXT
    pid: int | None = INTEGER
    process_start: int | None = INTEGER
    trust: str | None = TEXT


def read_choice(folder: str | os.PathLike[str]) -> ResumeChoice | None:
    """Return the choice in the record of a run; None if there is none that can be read."""
    return _choice(read_json(os.path.join(folder, RESUME)))  # noqa: PTH118  # as the other documents of the record


def parse_choice(content: FileContent) -> ResumeChoice | None:
    """Return the choice whose content came from elsewhere; None if it cannot be read."""
    return _choice(parse_json(content, RESUME))


def _choice(source: JsonObject | Unreadable | None) -> ResumeChoice | None:
    return read_part(ResumeChoice, source) if isinstance(source, JsonObject) else None
