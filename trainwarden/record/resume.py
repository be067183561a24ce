"""`resume.json`: the checkpoint that rank 0 chose for an attempt to resume from, which all its ranks obey."""

from __future__ import annotations

import os

from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import RESUME
from trainwarden.record.schema import INTEGER, RAW_TEXT, TEXT, TIME, RecordDocument, required


class ResumeChoice(RecordDocument):
    """Rank 0's choice: `path` is None where the attempt starts from the beginning.

    `size_bytes` is that of the file or folder as rank 0 sees it, None where it could not be measured. `host`, `pid` and
    `process_start`, in clock ticks since boot, are of rank 0's process.
    """

    attempt_key: str = required(TEXT)
    path: str | None = RAW_TEXT
    step: int | None = INTEGER
    size_bytes: int | None = INTEGER
    time: float | None = TIME
    host: str | None = TEXT
    pid: int | None = INTEGER
    process_start: int | None = INTEGER


def read_choice(folder: str | os.PathLike[str]) -> ResumeChoice | None:
    """Return the choice in the record of a run; None if there is none that can be read."""
    source = read_json(os.path.join(folder, RESUME))  # noqa: PTH118  # as the other documents of the record
    choice = ResumeChoice.from_json(source) if isinstance(source, JsonObject) else None
    return choice if choice and choice.attempt_key else None
