"""The stall budget of a run: seconds, or a multiple of its own steps where a factor is given."""

from __future__ import annotations

import pytest

from tests.cases import cases
from trainwarden.record.step_durations import StepDurations
from trainwarden.record.thresholds import InvalidThreshold, Thresholds, choose

STEPS = StepDurations(count=512, p50=3.0, p99=20.0, max=90.0)


BUDGETS = {
    "three times the 99th percentile": (STEPS, 60.0),
    "at least ten seconds": (STEPS.replace(p99=0.5), 10.0),
    "never later than the budget in seconds": (STEPS.replace(p99=300.0), 600.0),
    "a hundred steps are enough": (STEPS.replace(count=100), 60.0),
    "too few steps": (STEPS.replace(count=99), 600.0),
    "an unknown number of steps": (STEPS.replace(count=None), 600.0),
    "no percentile": (STEPS.replace(p99=None), 600.0),
    "no steps reported": (None, 600.0),
}


@cases(("durations", "expected"), BUDGETS.values(), ids=BUDGETS)
def test_a_factor_makes_the_budget_of_the_train_phase_from_the_runs_own_steps(
    durations: StepDurations | None, expected: float
) -> None:
    assert choose({"stall_factor": 3}, {}).stall_budget("train", durations) == expected


def test_other_phases_inferred_steps_and_runs_without_a_factor_keep_their_seconds() -> None:
    relative = choose(None, {"TRAINWARDEN_STALL_FACTOR": "3"})
    assert relative.stall_budget("eval", STEPS) == 1800.0
    assert relative.stall_budget("idle", STEPS) is None
    assert relative.stall_budget("train", STEPS, inferred=True) == 600.0
    assert choose(None, {}).stall_budget("train", STEPS) == 600.0


def test_the_record_keeps_the_factor() -> None:
    written = choose({"stall_factor": 2.5}, {}).to_json()
    assert Thresholds.from_json(written).stall_factor == 2.5
    assert "stall_factor" not in Thresholds().to_json()
    assert Thresholds.from_json({"stall_factor": -1}).stall_factor is None


@cases("text", ["three", "-1", "0", "nan"])
def test_a_factor_that_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidThreshold, match="TRAINWARDEN_STALL_FACTOR"):
        choose(None, {"TRAINWARDEN_STALL_FACTOR": text})
