"""The progress of runs that record none: what their logs say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.series import add_reported
from trainwarden_exporter.collectors.runs.view import believed

if TYPE_CHECKING:
    from trainwarden.signals.progress import Progress
    from trainwarden_exporter.collectors.runs.view import RunRecord
    from trainwarden_exporter.core.exchange import LogView
    from trainwarden_exporter.core.metric import Families


def is_under_way(record: RunRecord, view: LogView | None) -> bool:
    """Whether a run that seems not to have begun is at work, by its logs."""
    return record.state == "pending" and not record.has_metadata and view is not None and view.progress is not None


def add_log_progress(families: Families, record: RunRecord, view: LogView | None, now: float) -> None:
    """Add a run's progress where no other is recorded."""
    if view is not None and view.progress is not None and not record.has_progress:
        _add(families, record.run_id, view.progress)
        # That the loop moves, never that it stands still: a log may be silent, or held back, while a training works.
        families.add(metrics.TRAINING_STEP_CHANGE_TIMESTAMP_SECONDS, believed(view.moved, now), run_id=record.run_id)


def add_log_only(families: Families, run_id: str, view: LogView) -> None:
    """Add a run that has logs and no record: what state it is in is not known."""
    if view.progress is not None:
        _add(families, run_id, view.progress)
        families.add(metrics.TRAINING_STEP_CHANGE_TIMESTAMP_SECONDS, view.moved, run_id=run_id)


def _add(families: Families, run_id: str, progress: Progress) -> None:
    add_reported(families, run_id, progress)
    families.add(metrics.TRAINING_STEPS_TARGET, progress.total_steps, run_id=run_id)
    families.add(metrics.TRAINING_STEP_HIGH_WATER, progress.high_water, run_id=run_id)
