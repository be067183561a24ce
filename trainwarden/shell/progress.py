"""What one report of a step makes of `progress.json`: the memory of a loop whose every step is another process."""

from __future__ import annotations

from trainwarden.record.clock import to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_INFINITY = float("inf")
# Option, and key of the document.
_VALUES = (
    ("total-steps", "total_steps"),
    ("loss", "loss"),
    ("learning-rate", "learning_rate"),
    ("grad-norm", "grad_norm"),
    ("epoch", "epoch"),
    ("tokens-per-second", "tokens_per_second"),
    ("samples-per-second", "samples_per_second"),
)
# What holds across attempts.
_OF_THE_RUN = ("total_steps", "high_water", "steps_completed", "nonfinite", "checkpoint", "checkpoints")


def advance(before: Mapping[str, Any], report: Mapping[str, Any], key: str, attempt: int, now: float) -> dict[str, Any]:
    """The document after a report.

    Args:
        before: the document as it was, of whichever attempt; empty if there is none.
        report: by the names of the options of `trainwarden heartbeat`.
        key: of the attempt.
        attempt: its number.
        now: Unix seconds.
    """
    same = before.get("attempt_key") == key
    document = {name: value for name, value in before.items() if same or name in _OF_THE_RUN}
    document.update(version=1, attempt=attempt, attempt_key=key)
    for option, name in _VALUES:
        if option in report:
            document[name] = _finite(report[option])
    if report.get("metric"):
        known = document.get("metrics")
        metrics = {name: _finite(value) for name, value in report["metric"].items()}
        document["metrics"] = {**(known if isinstance(known, dict) else {}), **metrics}
    nonfinite = _whole(before.get("nonfinite")) or 0
    bad = any(name in report and _finite(report[name]) is None for name in ("loss", "grad-norm"))
    document["nonfinite"] = nonfinite + bad
    if "step" in report:
        _move(document, before if same else {}, report["step"], to_iso(now))
    return document


def _move(document: dict[str, Any], before: Mapping[str, Any], step: int, time: str) -> None:
    last = _whole(before.get("step"))
    completed = _whole(document.get("steps_completed")) or 0
    if last is None:
        completed += 1
    elif step != last:
        # A loop that reports every tenth step has made ten; one that was set back repeats.
        completed += step - last if step > last else 1
    if step != last:
        document["moved_time"] = time
    high = _whole(before.get("attempt_high"))
    if high is None or step > high:
        document.update(attempt_high=step, step_time=time)
    document.update(
        step=step,
        last_updated=time,
        steps_completed=completed,
        high_water=max(step, _whole(document.get("high_water")) or 0),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _finite(value: float) -> float | None:
    return value if -_INFINITY < value < _INFINITY else None
