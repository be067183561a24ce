"""The progress of a run by its log, and by one record of the log."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_DOCUMENT = (
    "step",
    "total_steps",
    "loss",
    "learning_rate",
    "grad_norm",
    "tokens_per_second",
    "samples_per_second",
    "epoch",
    "step_time_seconds",
)


@dataclass(frozen=True)
class LogProgress:
    """The latest values in a log; None where it has none.

    Attributes:
        step: as printed; in a log without a global step it may start again in each epoch.
        loss, grad_norm: NaN and infinity are kept: they were printed.
        tokens_per_second: as printed; some trainers (torchtitan's `tps`) mean one device.
        high_water: the highest step so far, over all restarts; summed over epochs where `step` starts again.
    """

    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    epoch: float | None = None
    step_time_seconds: float | None = None
    high_water: int | None = None

    def document(self) -> dict[str, float | None]:
        """Return the fields of the JSON output; empty if all are unknown. JSON has no NaN: it becomes None."""
        values = {name: getattr(self, name) for name in _DOCUMENT}
        if all(value is None for value in values.values()):
            return {}
        return {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}


# What a record's step is worth, best first.
GLOBAL = 0  # called global, or the number of updates, beside a metric
STATED = 1  # called step or iteration, beside a metric
COUNTER = 2  # of a progress bar, or of the batches of an epoch
BARE = 3  # a step and nothing else: any program may print that


@dataclass(frozen=True)
class Reading:
    """The values in one record.

    Attributes:
        values: fields of `LogProgress` other than the step and its total.
        weak: fields among them that are only derived, such as a bar's average rate.
        rank: what the step is worth.
        local: the step starts again in each epoch.
        anonymous: a bar without a description: of the training, or of an evaluation within it.
    """

    step: int | None = None
    total_steps: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    weak: frozenset[str] = frozenset()
    rank: int = BARE
    local: bool = False
    anonymous: bool = False
