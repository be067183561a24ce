"""`metadata.json`: which attempt owns the record, and that its process lives."""

# Shell commands load this: pathlib is slow to import.
# ruff: noqa: PTH118

from __future__ import annotations

import os

from trainwarden.record.document import JsonObject, parse_json, read_json
from trainwarden.record.folder import METADATA, PHASES
from trainwarden.record.schema import (
    INTEGER,
    PROBLEMS,
    TEXT,
    TEXTS,
    TIME,
    VALUES,
    RecordDocument,
    key,
    one_line,
    part,
    parts,
    required,
)
from trainwarden.record.thresholds import Thresholds, known_phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainwarden.record.document import FileContent, Unreadable

VERSION = 1
STATUSES = ("pending", "running", "succeeded", "failed", "cancelled")
# The statuses of an attempt that has not ended.
LIVE_STATUSES = ("pending", "running")
_OTHER_SPELLINGS = {"completed": "succeeded", "canceled": "cancelled"}


def _read_status(source: JsonObject, key: str) -> str | None:
    text = source.text(key)
    if text is None or text in STATUSES:
        return text
    status = _OTHER_SPELLINGS.get(text.strip().lower(), text.strip().lower())
    if status in STATUSES:
        return status
    source.problems.append(f"{key}: {text[:60]!r} is none of {', '.join(STATUSES)}")
    return None


def _read_phase(source: JsonObject, key: str) -> str | None:
    phase = source.values.get(key)
    if type(phase) is str and phase in PHASES:
        return phase
    phase = source.text(key)
    return known_phase(phase) if phase else None


STATUS: Any = key(_read_status)
PHASE: Any = key(_read_phase)


class Attempt(RecordDocument):
    """One entry of `attempts`; `resume_step` is the first step that the attempt reported."""

    attempt: int = required(INTEGER)
    key: str = required(TEXT)
    start_time: float | None = TIME
    resume_step: int | None = INTEGER


class Metadata(RecordDocument):
    """`metadata.json`. `last_update` is the liveness of the process, and no sign that it trains.

    `user_id` is the uid that the job runs as, where another user writes the record for it; `checkpoint_trust` is what
    counts as a complete checkpoint of such a job, and `resume` are variables of its next start, as templates.
    `gpu_type` is the type of the GPU that rank 0 trains on, and `gpu_count` how many its process sees.
    """

    run_id: str | None = TEXT
    status: str | None = STATUS
    phase: str | None = PHASE
    last_update: float | None = TIME
    instance_id: str | None = TEXT
    version: int | None = INTEGER
    attempt: int | None = INTEGER
    attempt_key: str | None = TEXT
    job_id: str | None = TEXT
    scheduler: str | None = TEXT
    attempts: tuple[Attempt, ...] = parts(Attempt)
    start_time: float | None = TIME
    attempt_start_time: float | None = TIME
    phase_time: float | None = TIME
    phase_source: str | None = TEXT
    end_time: float | None = TIME
    reason: str | None = key(JsonObject.text, one_line)
    framework: str | None = TEXT
    model: str | None = TEXT
    method: str | None = TEXT
    world_size: int | None = INTEGER
    gpu_type: str | None = TEXT
    gpu_count: int | None = INTEGER
    host: str | None = TEXT
    pid: int | None = INTEGER
    user_id: int | None = INTEGER
    environment: Mapping[str, str] = TEXTS
    write_errors: int | None = INTEGER
    signals: str | None = TEXT
    log_path: str | None = TEXT
    policy: str | None = TEXT
    checkpoint_trust: str | None = TEXT
    resume: Mapping[str, str] = TEXTS
    thresholds: Thresholds = part(Thresholds, Thresholds())
    s3: Mapping[str, Any] = VALUES
    lines_dropped: int | None = INTEGER
    problems: tuple[str, ...] = PROBLEMS

    @property
    def is_live(self) -> bool:
        """Whether the attempt has not ended."""
        return self.status in LIVE_STATUSES

    def number_of(self, key: str) -> int | None:
        """Return the number of the attempt `key`; None if the record does not list it."""
        return next((attempt.attempt for attempt in self.attempts if attempt.key == key), None)


def end_of_attempt(status: str, reason: str | None, now: float) -> Metadata:
    """Return the fields of `metadata.json` that state the end of an attempt at `now`, Unix seconds."""
    changes = Metadata(status=status, end_time=now)
    if status == "succeeded":
        changes = changes.replace(phase="done", phase_time=now)
    return changes.replace(reason=reason) if reason else changes


def read_metadata(folder: str | os.PathLike[str]) -> Metadata | Unreadable | None:
    """Return the run's `metadata.json`; None if there is none."""
    source = read_json(os.path.join(folder, METADATA))
    return Metadata.from_json(source) if isinstance(source, JsonObject) else source


def parse_metadata(content: FileContent, path: str | os.PathLike[str]) -> Metadata | Unreadable:
    """Return the `metadata.json` whose content came from elsewhere; `path` is where it belongs."""
    source = parse_json(content, path)
    return Metadata.from_json(source) if isinstance(source, JsonObject) else source
