"""What all dashboards share: units, colours, thresholds, and how a state is coloured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

GOOD, WARN, BAD, CALM, MUTED = "green", "yellow", "red", "blue", "text"


class Unit(str, Enum):
    """A unit by Grafana's id."""

    NUMBER = "short"
    RATIO = "percentunit"
    PERCENT = "percent"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    PER_SECOND = "ops"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    DOLLARS = "currencyUSD"
    GPU_HOURS = "suffix: GPU h"


@dataclass(frozen=True)
class Scale:
    """The colour of a value: `base`, and from each number on another."""

    base: str
    steps: tuple[tuple[float, str], ...] = ()


PLAIN = Scale(CALM)
NONE_IS_GOOD = Scale(GOOD, ((1, BAD),))
NONE_IS_BETTER = Scale(GOOD, ((1, WARN),))
ONE_IS_GOOD = Scale(BAD, ((1, GOOD),))
# Of a budget: TrainRunStalled and TrainRunTimedOut fire at 1.
BUDGET = Scale(GOOD, ((0.5, WARN), (1, BAD)))
# Goodput and ETTR: TrainRunGoodputLow fires below the target of rules/values.yml.
EFFICIENCY = Scale(BAD, ((0.5, WARN), (0.9, GOOD)))
# Limits near the slowdown of most GPUs: TrainGpuHot.
HEAT = Scale(GOOD, ((80, WARN), (88, BAD)))

# States of runs and incidents, the same colour on all dashboards.
STATES = {
    "pending": MUTED,
    "running": CALM,
    "succeeded": GOOD,
    "failed": BAD,
    "cancelled": WARN,
    "DONE": GOOD,
    "FAILED": BAD,
    "ESCALATED": BAD,
    "IN_DOUBT": WARN,
    "critical": BAD,
    "warning": WARN,
    "info": CALM,
}
# A series whose name ends so is a limit: dashed and red.
LIMIT = "budget|threshold|limit"

RUNBOOKS = "https://github.com/trainwarden/trainwarden/blob/main/rules/runbooks"
