"""A run record as a metrics-server tells of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainwarden_exporter.finetuning.job import PAUSED, RUNNING, Reading, percent, status_number
from trainwarden_exporter.finetuning.training_info import SavedCheckpoint, TrainingInfo

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.runs.folder import RunFolder


def read_run(folder: RunFolder) -> tuple[TrainingInfo, float]:
    """Return what the record says and when it last changed, Unix seconds; raises `OSError` if it cannot be read."""
    record = folder.read(time.time())
    progress = record.current_progress
    status = status_number(record.state or "")
    if status == RUNNING and record.metadata and record.metadata.phase == "idle":
        status = PAUSED
    reading = Reading(status=status)
    saved: tuple[SavedCheckpoint, ...] = ()
    if progress:
        reading = Reading(
            status=status,
            epoch=progress.epoch,
            step=progress.step,
            progress=percent(progress.step, progress.total_steps),
            loss=progress.loss,
            learning_rate=progress.learning_rate,
            samples_per_second=progress.samples_per_second,
            tokens_per_second=progress.tokens_per_second,
            checkpoints=progress.checkpoints_saved,
        )
        last = progress.checkpoint
        if last:
            saved = (SavedCheckpoint(f"{last.path}@{last.step}@{last.time}", last.size_bytes),)
    start, end = record.attempt_start, record.end
    duration = end - start if start is not None and end is not None else None
    problems = tuple(problem.text for problem in folder.problems)
    changed = [metadata.last_update for metadata in (record.metadata,) if metadata and metadata.last_update is not None]
    return TrainingInfo(reading, duration, saved, problems), max([*changed, record.modified])
