"""Combine the values of many records: one has the loss, another the step, a third the throughput."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainwarden.signals.progress.model import BARE, COUNTER, STATED, LogProgress, Reading

# A better kind of step no longer counts if the log has not repeated it for so long.
STALE_BYTES = 4 * 1024 * 1024
# A value may be so many steps, or twice its own interval, behind the step.
LAG_STEPS = 10
# Bars of another length until the training's bar counts as abandoned.
PATIENCE = 64


@dataclass(frozen=True)
class _Step:
    """The last step of one kind.

    Attributes:
        at: position in the log.
        stride: how far the step last moved; 0 before it did.
        restarts: the counter is known to start anew in each epoch.
    """

    step: int
    total: int | None
    epoch: float | None
    at: int
    high: int
    stride: int = 0
    restarts: bool = False


@dataclass(frozen=True)
class _Value:
    value: float
    at: int
    step: int | None
    stride: int
    weak: bool


class Picture:
    """The state of a run as its log shows it."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._values: dict[str, _Value] = {}
        self._bar: int | None = None
        self._other_bars = 0

    def add(self, reading: Reading, at: int) -> None:
        """Add the values of the record at this position; records come in the order of the log."""
        if reading.anonymous and not self._is_training_bar(reading):
            return
        stride = 0
        if reading.rank == BARE and self._counts_the_same(reading):
            reading = replace(reading, rank=STATED)
        if reading.step is not None:
            stride = self._add_step(reading, reading.step, at)
        for name, value in reading.values.items():
            old, weak = self._values.get(name), name in reading.weak
            if old is None or old.weak or not weak:
                own = reading.step if reading.rank < COUNTER else None
                interval = stride
                if old is not None and old.step is not None and own is not None and own > old.step:
                    interval = own - old.step
                self._values[name] = _Value(value, at, own, interval, weak)

    def progress(self) -> LogProgress:
        """Return the progress as of the last record."""
        current = self._current()
        step = current.step if current else None
        values = {name: value.value for name, value in self._values.items() if not _outdated(value, step)}
        progress = LogProgress(**values)  # type: ignore[arg-type]  # a reading's values are never the integer fields
        if current is None:
            return progress
        total = current.total if current.total is None or current.total >= current.step else None
        return replace(progress, step=current.step, total_steps=total, high_water=current.high)

    def state(self) -> dict[str, Any]:
        """Return all state, in types that JSON has."""
        return {
            "steps": {
                str(rank): [s.step, s.total, s.epoch, s.at, s.high, s.stride, s.restarts]
                for rank, s in self._steps.items()
            },
            "values": {name: [str(v.value), v.at, v.step, v.stride, v.weak] for name, v in self._values.items()},
            "bar": [self._bar, self._other_bars],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state()` returned."""
        self._steps = {int(rank): _Step(*fields) for rank, fields in state["steps"].items()}
        self._values = {name: _Value(float(value), *rest) for name, (value, *rest) in state["values"].items()}
        self._bar, self._other_bars = state["bar"]

    def _current(self) -> _Step | None:
        if not self._steps:
            return None
        latest = max(step.at for step in self._steps.values())
        return next(step for _, step in sorted(self._steps.items()) if latest - step.at <= STALE_BYTES)

    def _is_training_bar(self, reading: Reading) -> bool:
        """Return whether the bar is the training's: an evaluation's has another length, and begins before its end."""
        total, main = reading.total_steps, self._steps.get(COUNTER)
        if self._bar is None or total == self._bar or main is None or main.step >= (main.total or 0):
            self._bar, self._other_bars = total, 0
            return True
        self._other_bars += 1
        if self._other_bars < PATIENCE:
            return False
        self._bar, self._other_bars = total, 0
        return True

    def _counts_the_same(self, reading: Reading) -> bool:
        known = self._steps.get(STATED)
        return known is not None and known.total is not None and known.total == reading.total_steps

    def _add_step(self, reading: Reading, number: int, at: int) -> int:
        old = self._steps.get(reading.rank)
        epoch = reading.values.get("epoch")
        total = reading.total_steps
        if old is None:
            restarts, stride, high = reading.local, 0, 0
        else:
            if epoch is not None and old.epoch is not None and epoch > old.epoch and number < old.step:
                restarts = old.restarts or epoch == int(epoch)
            else:
                restarts = old.restarts or reading.local
                self._forget_before_restart(old, number, at)
            stride, high = (number - old.step if number > old.step else old.stride), old.high
            total = total if total is not None or number < old.step else old.total
        position = number
        if restarts and epoch is not None and total is not None:
            position += int(epoch) * total
        self._steps[reading.rank] = _Step(number, total, epoch, at, max(high, position), stride, restarts)
        return stride

    def _forget_before_restart(self, old: _Step, number: int, at: int) -> None:
        """Drop the values of an earlier attempt: a step far behind the last one is of a new attempt."""
        if number <= 1 < old.step or old.step - number > max(LAG_STEPS, 2 * old.stride):
            self._values = {name: value for name, value in self._values.items() if value.at >= at}
            self._steps = {rank: step for rank, step in self._steps.items() if step is not old}


def _outdated(value: _Value, step: int | None) -> bool:
    if step is None or value.step is None or not value.stride:
        return False
    return step - value.step > max(LAG_STEPS, 2 * value.stride)
