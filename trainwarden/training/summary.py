"""`summary.json`: the result of an attempt in one document."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.record.clock import to_iso
from trainwarden.record.folder import ERRORS, RANKS, SUMMARY
from trainwarden.record.schema import INTEGER, TEXT, VALUES, RecordDocument, key, required
from trainwarden.training.context import RunContext, script_name

KEPT_ERRORS = 20
# The newest errors of each rank, and of at most 64 ranks: a thousand ranks that fail together report the same.
_TAIL_BYTES = 64 * 1024
_MAX_RANKS = 64

# Readers of training summaries expect these names.
_STATUSES = {"succeeded": "completed"}


@dataclass(frozen=True)
class AttemptResult:
    """The result of an attempt. `end_time` is Unix seconds, rates are means, unknown values None."""

    status: str
    reason: str | None
    failure: str | None
    end_time: float
    duration_seconds: float
    steps_completed: int
    epochs_completed: int | None
    final_metric: float | None
    checkpoint_path: str | None
    first_step: int | None
    final_step: int | None
    final_loss: float | None
    tokens_per_second: float | None
    samples_per_second: float | None

    def completion(self) -> dict[str, Any]:
        """Return the data of the event `training_completed`."""
        return {
            "status": _STATUSES.get(self.status, self.status),
            "epochs_completed": self.epochs_completed,
            "steps_completed": self.steps_completed,
            "final_metric": self.final_metric,
            "first_step": self.first_step,
            "final_step": self.final_step,
            "final_loss": self.final_loss,
            "tokens_per_second": self.tokens_per_second,
            "samples_per_second": self.samples_per_second,
            "checkpoint_path": self.checkpoint_path,
            "duration_seconds": round(self.duration_seconds, 3),
            "reason": self.reason,
            "failure": self.failure,
        }


class SummaryDocument(RecordDocument):
    """`summary.json`; `errors` are the last 20 by their time, without traces."""

    run_id: str = required(TEXT)
    attempt: int | None = INTEGER
    attempt_key: str | None = TEXT
    training: Mapping[str, Any] = VALUES
    errors: Sequence[Mapping[str, Any]] = key(lambda source, name: [one.values for one in source.children(name)])
    gpu_stats: Mapping[str, Any] = VALUES


def summary(
    context: RunContext, result: AttemptResult, errors: Iterable[Mapping[str, Any]], gpu_stats: Mapping[str, Any]
) -> SummaryDocument:
    """Return `summary.json`, with the last 20 of `errors` by time, without tracebacks."""
    last = sorted(errors, key=lambda error: str(error.get("timestamp")))[-KEPT_ERRORS:]
    return SummaryDocument(
        run_id=context.run_id,
        attempt=context.beginning.this.attempt if context.beginning else None,
        attempt_key=str(context.key),
        training={
            "script": script_name(),
            "start_time": to_iso(context.start),
            "end_time": to_iso(result.end_time),
            **result.completion(),
        },
        errors=[{name: value for name, value in error.items() if name != "traceback"} for error in last],
        gpu_stats=gpu_stats,
    )


def summary_file(attempt: int) -> str:
    """Return the name under which the summary of one attempt is kept."""
    stem, dot, ending = SUMMARY.partition(".")
    return f"{stem}.{attempt}{dot}{ending}"


def errors_of_others(folder: Path, key: str) -> list[dict[str, Any]]:
    """Return the newest errors of the other ranks of the attempt `key` whose journals this host can read."""
    try:
        names = os.listdir(folder / RANKS)  # noqa: PTH208  # names only: a thousand ranks need no Path each
    except OSError:
        return []
    paths = [folder / RANKS / name for name in sorted(names) if name.endswith(f".{ERRORS}")]
    return [error for path in paths[:_MAX_RANKS] for error in _tail(path) if error.get("attempt_key") == key]


def _tail(path: Path) -> list[dict[str, Any]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
            file.seek(max(0, os.fstat(descriptor).st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return []
    return [error for line in lines if (error := _parse(line)) is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        error = json.loads(line)
    except ValueError:
        # The first line of a tail, or the last line of a killed process, may be incomplete.
        return None
    return error if isinstance(error, dict) else None
