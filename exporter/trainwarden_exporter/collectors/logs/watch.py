"""What the collector of logs needs to know of a run, out of its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.logs.verdict import attempt_of
from trainwarden_exporter.collectors.runs.view import ENDED, is_quiet
from trainwarden_exporter.core.exchange import WatchedRun

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden_exporter.collectors.runs.view import RunRecord, Steps

_NAMED = {
    "slurm_array_job_id": "array_job_id",
    "slurm_array_task_id": "array_task_id",
    "slurm_job_name": "job_name",
    "slurm_job_user": "user",
}


def watched(
    record: RunRecord, folder: Path | None, *, owned: bool, host: str | None, steps: Steps, now: float
) -> WatchedRun:
    """The run as its logs are followed; `host` is what a template's node is, None for every node."""
    metadata = record.metadata
    values = {"run_id": record.run_id}
    if metadata:
        stated = {**metadata.environment}
        values.update({name: stated[key] for key, name in _NAMED.items() if stated.get(key)})
        values.update({"job_id": metadata.job_id} if metadata.job_id else {})
        values.update({"attempt": str(metadata.attempt)} if metadata.attempt is not None else {})
    if host:
        values["host"] = host.partition(".")[0]
    return WatchedRun(
        run_id=record.run_id,
        folder=folder,
        owned=owned,
        attempt=attempt_of(record),
        attempt_start=record.attempt_start,
        ended=record.state in ENDED,
        quiet=is_quiet(record, steps.advanced, now),
        values=values,
        signals=metadata.signals if metadata else None,
        log_path=metadata.log_path if metadata else None,
    )
