"""`summary.json`: an attempt at its end, in one look."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.record.clock import to_iso
from trainwarden.record.folder import ERRORS, RANKS
from trainwarden.training.subject import Subject, script_name

KEPT_ERRORS = 20
# Each rank's newest errors, and of so many ranks: a thousand that failed together say the same.
_TAIL_BYTES = 64 * 1024
_MAX_RANKS = 64

# What readers of training summaries call these ends.
_STATUSES = {"succeeded": "completed"}


@dataclass(frozen=True)
class Outcome:
    """What an attempt came to. `end_time` is Unix seconds; what is not known is None."""

    status: str
    reason: str | None
    end_time: float
    duration_seconds: float
    steps_completed: int
    epochs_completed: int | None
    final_metric: float | None
    checkpoint_path: str | None

    def completion(self) -> dict[str, Any]:
        """As the event `training_completed` says it."""
        return {
            "status": _STATUSES.get(self.status, self.status),
            "epochs_completed": self.epochs_completed,
            "steps_completed": self.steps_completed,
            "final_metric": self.final_metric,
            "checkpoint_path": self.checkpoint_path,
            "duration_seconds": round(self.duration_seconds, 3),
            "reason": self.reason,
        }


def summary(
    subject: Subject, outcome: Outcome, errors: Iterable[Mapping[str, Any]], gpu_stats: Mapping[str, Any]
) -> dict[str, Any]:
    """The document; of the errors the last 20 by their time, without traces."""
    last = sorted(errors, key=lambda error: str(error.get("timestamp")))[-KEPT_ERRORS:]
    return {
        "run_id": subject.run_id,
        "attempt": subject.beginning.this.attempt if subject.beginning else None,
        "attempt_key": str(subject.key),
        "training": {
            "script": script_name(),
            "start_time": to_iso(subject.start),
            "end_time": to_iso(outcome.end_time),
            **outcome.completion(),
        },
        "errors": [{key: value for key, value in error.items() if key != "traceback"} for error in last],
        "gpu_stats": dict(gpu_stats),
    }


def errors_of_others(folder: Path, key: str) -> list[dict[str, Any]]:
    """The newest errors that other ranks of the attempt `key` wrote, as far as this host sees and can read them."""
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
        # The first line of a tail, or the last of a process that was killed, may be a part.
        return None
    return error if isinstance(error, dict) else None
