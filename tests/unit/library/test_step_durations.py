"""How long steps take: measured between two reports, without what is no step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.library.processes import Starter
from trainwarden.record.progress import Progress
from trainwarden.record.step_durations import WINDOW_STEPS, StepDurations, StepTimer


@cases(
    ("seconds", "count", "p50", "p99", "longest"),
    [
        ([2.0], 1, 2.0, 2.0, 2.0),
        ([3.0, 1.0], 2, 1.0, 3.0, 3.0),
        ([float(number) for number in range(1, 101)], 100, 50.0, 99.0, 100.0),
        ([1.0] * 200 + [9.0, 7.0], 202, 1.0, 1.0, 9.0),
        ([1.0] * 197 + [9.0, 7.0, 8.0], 200, 1.0, 7.0, 9.0),
    ],
)
def test_the_quantiles_are_durations_that_were_measured(
    seconds: list[float], count: int, p50: float, p99: float, longest: float
) -> None:
    assert StepDurations.of(seconds) == StepDurations(count=count, p50=p50, p99=p99, max=longest)


def test_without_a_duration_there_is_nothing_to_record() -> None:
    assert StepDurations.of(()) is None
    assert "step_durations" not in Progress(step=1).to_json()


def test_a_duration_lies_between_two_reports() -> None:
    timer = StepTimer()
    for step, moment in ((0, 10.0), (1, 11.0), (2, 13.0)):
        timer.report(step, moment)
    assert timer.seconds == (1.0, 2.0)


def test_a_report_of_several_steps_stands_for_equal_ones() -> None:
    timer = StepTimer()
    timer.report(10, 0.0)
    timer.report(20, 5.0)
    assert timer.seconds == (0.5,)


def test_several_reports_of_one_step_are_one_step() -> None:
    timer = StepTimer()
    for step, moment in ((1, 0.0), (1, 1.0), (2, 4.0)):
        timer.report(step, moment)
    assert timer.seconds == (4.0,)


def test_a_loop_that_is_set_back_has_made_no_step() -> None:
    timer = StepTimer()
    for step, moment in ((50, 0.0), (40, 90.0), (41, 91.0)):
        timer.report(step, moment)
    assert timer.seconds == (1.0,)


def test_a_step_that_was_interrupted_is_left_out() -> None:
    timer = StepTimer()
    timer.report(1, 0.0)
    timer.interrupt()
    timer.report(2, 300.0)
    timer.report(3, 301.0)
    assert timer.seconds == (1.0,)


def test_only_the_last_steps_count() -> None:
    timer = StepTimer()
    for step in range(2 * WINDOW_STEPS):
        timer.report(step, step * (1.0 if step < WINDOW_STEPS else 2.0))
    assert len(timer.seconds) == WINDOW_STEPS
    assert StepDurations.of(timer.seconds[1:]) == StepDurations(count=511, p50=2.0, p99=2.0, max=2.0)


@pytest.mark.parametrize("interruption", ["phase", "checkpoint"])
def test_a_run_records_them_without_evaluations_and_checkpoints(
    tmp_path: Path, attempt: Starter, interruption: str
) -> None:
    run = attempt()
    with run:
        for step in range(1, 11):
            run.step(step)
            if step == 5 and interruption == "phase":
                with run.phase("eval"):
                    pass
            elif step == 5:
                run.checkpoint_saved(tmp_path)
    found = json.loads((run.folder / "progress.json").read_text())["step_durations"]
    assert found["count"] == 8
    assert 0 < found["p50"] <= found["p99"] <= found["max"]
