"""The reports of the loop are stored exactly, for any argument."""

import math
import threading
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.cases import cases
from trainwarden.record.steps import StepCounter
from trainwarden.training.loop import LoopState, Throughput, finite, plain_metrics, whole


def _report(loop: LoopState, step: Any, **values: Any) -> None:
    loop.report(step, metrics={}, **values)


def test_steps_are_counted_and_repeated_ones_count_again() -> None:
    loop = LoopState(StepCounter())
    for step in (1, 2, 3, 1, 2):
        _report(loop, step)
    view = loop.snapshot()
    assert (view.step, view.first_step, view.high_water, view.steps_completed) == (2, 1, 3, 5)


def test_a_loop_that_reports_every_tenth_step_has_made_ten() -> None:
    loop = LoopState(StepCounter())
    for step in (10, 20, 30):
        _report(loop, step)
    assert loop.snapshot().steps_completed == 21


def test_a_second_report_of_the_same_step_is_no_second_step() -> None:
    loop = LoopState(StepCounter())
    _report(loop, 5, loss=1.0)
    _report(loop, 5, loss=0.5)
    assert (loop.snapshot().steps_completed, loop.snapshot().loss) == (1, 0.5)


def test_an_attempt_that_repeats_steps_advances_itself_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 200.0, 300.0])
    monkeypatch.setattr("trainwarden.training.loop.time.time", lambda: next(times))
    loop = LoopState(StepCounter(high_water=50, steps_completed=50, nonfinite=2))
    _report(loop, 41)
    _report(loop, 42)
    _report(loop, 42)
    view = loop.snapshot()
    assert (view.high_water, view.steps_completed, view.nonfinite) == (50, 52, 2)
    assert (view.step_time, view.moved_time, view.last_updated) == (200.0, 200.0, 300.0)


def test_a_loop_that_is_set_back_moves_and_does_not_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 200.0, 300.0, 400.0])
    monkeypatch.setattr("trainwarden.training.loop.time.time", lambda: next(times))
    loop = LoopState(StepCounter())
    for step in (9, 3, 4, 4):
        _report(loop, step)
    assert (loop.snapshot().step_time, loop.snapshot().moved_time) == (100.0, 300.0)


@cases("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf"), 10**400, Decimal("NaN")])
def test_a_loss_that_is_no_finite_number_is_counted_and_not_kept(value: Any) -> None:
    loop = LoopState(StepCounter())
    _report(loop, 1, loss=value)
    _report(loop, 2, grad_norm=value)
    _report(loop, 3, loss=1.0, grad_norm=2.0)
    assert loop.snapshot().nonfinite == 2
    assert finite(value) is None


@cases(("value", "number"), [(7, 7), (np.int64(7), 7), (7.0, 7), (np.float32(7), 7), (True, 1)])
def test_steps_of_any_library_are_whole_numbers(value: Any, number: int) -> None:
    loop = LoopState(StepCounter())
    _report(loop, value)
    assert loop.snapshot().step == number


@cases("value", [None, "7", -1, 7.5, math.nan, math.inf, 2**63, object(), [1]])
def test_a_step_that_is_no_number_leaves_the_last_one_and_still_shows_that_the_loop_moved(value: Any) -> None:
    loop = LoopState(StepCounter())
    _report(loop, 3)
    before = loop.snapshot()
    _report(loop, value)
    after = loop.snapshot()
    assert (after.step, after.steps_completed) == (3, 1)
    assert after.reports == before.reports + 1
    assert whole(value) is None


def test_metrics_keep_what_json_can_hold() -> None:
    metrics = {
        "number": 1.5,
        "whole": 3,
        "numpy": np.float32(2),
        "nan": math.nan,
        "huge": 10**400,
        "text": "x" * 1000,
        "flag": True,
        "object": object(),
        "list": [1],
    }
    kept = plain_metrics(metrics)
    assert kept == {"number": 1.5, "whole": 3, "numpy": 2.0, "nan": None, "huge": None, "text": "x" * 200, "flag": True}
    assert len(plain_metrics({str(n): n for n in range(10_000)})) == 100


def test_no_step_is_lost_between_threads() -> None:
    loop = LoopState(StepCounter())

    def work() -> None:
        for _ in range(2000):
            _report(loop, 1, loss=math.nan, tokens=2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view = loop.snapshot()
    assert (view.reports, view.nonfinite, view.tokens) == (8000, 8000, 16000.0)


def test_rates_are_those_of_the_last_half_minute() -> None:
    throughput = Throughput()
    assert throughput.add(100.0, 10.0, None).tokens is None
    assert throughput.add(110.0, 1010.0, None).tokens == 100.0
    throughput.add(200.0, 1010.0, None)
    rates = throughput.add(210.0, 1510.0, None)
    assert (rates.tokens, rates.samples) == (50.0, None)


def test_a_clock_that_is_set_back_gives_no_negative_rate() -> None:
    throughput = Throughput()
    throughput.add(1000.0, 10.0, 1.0)
    assert throughput.add(900.0, 20.0, 2.0).tokens is None
    assert throughput.add(910.0, 30.0, 3.0).tokens == 1.0
