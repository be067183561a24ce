"""MLPerf's log lines, which keep the name of a value apart from the value."""

import json
import math
from typing import Any

from trainwarden.signals.progress.keys import meaning
from trainwarden.signals.progress.model import BARE, STATED, Reading

MARK = b":::MLLOG"
_KEYS = frozenset(("train_loss", "loss", "tracked_stats", "training_loss", "reduced_train_loss", "train_step"))


def read_mllog(record: bytes) -> Reading | None:
    """Return the training's values in an MLLOG record; None for its evaluations, phases and settings."""
    try:
        entry = json.loads(record[record.find(b"{") :])
        key, value, metadata = entry["key"], entry["value"], entry.get("metadata") or {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if key not in _KEYS or not isinstance(metadata, dict):
        return None
    stated = {**metadata, **(value if isinstance(value, dict) else {key: value})}
    values = {}
    for name, number in stated.items():
        found = meaning(tuple(str(name).lower().split("_"))) if _is_number(number) else None
        if found is not None and found.field not in ("step", "total_steps", "epoch"):
            values[found.field] = number / found.divisor
    if _is_number(stated.get("throughput")):
        values["samples_per_second"] = float(stated["throughput"])
    step = next((metadata[name] for name in ("step", "step_num", "iteration") if _is_step(metadata.get(name))), None)
    if not values and step is None:
        return None
    return Reading(step=None if step is None else int(step), values=values, rank=STATED if values else BARE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_step(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value >= 0
