"""`progress.json`: where the training loop is, and what it has reported."""

# Shell commands load this: pathlib is slow to import.
# ruff: noqa: PTH118

from __future__ import annotations

import os

from trainwarden.record.document import JsonObject, Unreadable, parse_json, read_json
from trainwarden.record.folder import CHECKPOINTED, PROGRESS
from trainwarden.record.schema import (
    INTEGER,
    NOT_IN_FILE,
    NUMBER,
    PROBLEMS,
    RAW_TEXT,
    TEXT,
    TIME,
    VALUES,
    RecordDocument,
    part,
    parts,
    required,
)
from trainwarden.record.step_durations import StepDurations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from typing_extensions import Self

    from trainwarden.record.document import FileContent


class Checkpoint(RecordDocument):
    """A checkpoint that the training reported as saved; `size_bytes` is that of the file or of the whole folder.

    `verified_time` is when its writer had read all of it and written its digests.
    """

    path: str = required(RAW_TEXT)
    step: int | None = INTEGER
    time: float | None = TIME
    size_bytes: int | None = INTEGER
    verified_time: float | None = TIME


class Progress(RecordDocument):
    """`progress.json`, written only when the training loop moved. `checkpoints` are the last few, newest first.

    `checkpoints_saved` is the number of checkpoints over the whole run: `count` in the file's `checkpoint`.
    """

    step: int | None = INTEGER
    total_steps: int | None = INTEGER
    loss: float | None = NUMBER
    learning_rate: float | None = NUMBER
    last_updated: float | None = TIME
    version: int | None = INTEGER
    attempt: int | None = INTEGER
    attempt_key: str | None = TEXT
    step_time: float | None = TIME
    moved_time: float | None = TIME
    high_water: int | None = INTEGER
    steps_completed: int | None = INTEGER
    attempt_high: int | None = INTEGER
    nonfinite: int | None = INTEGER
    epoch: float | None = NUMBER
    grad_norm: float | None = NUMBER
    tokens_per_second: float | None = NUMBER
    samples_per_second: float | None = NUMBER
    step_durations: StepDurations | None = part(StepDurations)
    metrics: Mapping[str, Any] = VALUES
    checkpoint: Checkpoint | None = part(Checkpoint)
    checkpoints_saved: int | None = NOT_IN_FILE
    checkpoints: tuple[Checkpoint, ...] = parts(Checkpoint)
    problems: tuple[str, ...] = PROBLEMS

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | JsonObject) -> Self:
        """Return the progress that a JSON object spells; what is absent or unusable has its default."""
        source = values if isinstance(values, JsonObject) else JsonObject(values)
        last = source.values.get("checkpoint")
        count = JsonObject(last, problems=source.problems).integer("count") if isinstance(last, dict) else None
        document = super().from_json(source)
        if count is not None:
            vars(document)["checkpoints_saved"] = count
        return document

    def to_json(self) -> dict[str, Any]:
        """Return the fields that were given, as the file holds them."""
        document = super().to_json()
        if document.get("checkpoint") and self.checkpoints_saved is not None:
            document["checkpoint"]["count"] = self.checkpoints_saved
        return document

    def known_checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that the record names, newest first."""
        last = (self.checkpoint,) if self.checkpoint else ()
        return last + tuple(one for one in self.checkpoints if one not in last)


def read_progress(folder: str | os.PathLike[str]) -> Progress | Unreadable | None:
    """Return the run's `progress.json`; None if there is none."""
    return _read(os.path.join(folder, PROGRESS))


def read_checkpointed(folder: str | os.PathLike[str]) -> Progress | Unreadable | None:
    """Return the run's `checkpoint.json`: its progress as it was when the last checkpoint was recorded."""
    return _read(os.path.join(folder, CHECKPOINTED))


def parse_progress(content: FileContent, path: str | os.PathLike[str]) -> Progress | Unreadable:
    """Return the `progress.json` or `checkpoint.json` whose content came from elsewhere; `path` is where it belongs."""
    source = parse_json(content, path)
    return Progress.from_json(source) if isinstance(source, JsonObject) else source


def _read(path: str) -> Progress | Unreadable | None:
    source = read_json(path)
    return Progress.from_json(source) if isinstance(source, JsonObject) else source
