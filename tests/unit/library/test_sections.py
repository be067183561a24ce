"""Time per section of a step: what the script names, on this rank, without steps in which something else was done."""

from __future__ import annotations

import logging

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.library.processes import Starter
from trainwarden.record.rank import MAX_SECTIONS, RankBeat, read_ranks
from trainwarden.training.sections import SectionMeans, SectionTimer


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer(clock: Clock) -> SectionTimer:
    return SectionTimer(clock)


def spend(timer: SectionTimer, clock: Clock, **sections: float) -> None:
    for name, seconds in sections.items():
        timer.enter(name)
        clock.seconds += seconds


def test_the_times_of_each_section_are_added_up_over_the_steps(timer: SectionTimer, clock: Clock) -> None:
    for data in (1.0, 3.0):
        spend(timer, clock, data=data, forward=0.5)
        timer.end_step(1, clock())
        timer.enter(None)
    assert timer.totals() == (2, {"data": 4.0, "forward": 1.0})


def test_a_section_that_goes_on_over_a_step_is_shared_by_both(timer: SectionTimer, clock: Clock) -> None:
    spend(timer, clock, data=1.0)
    timer.end_step(1, clock())
    clock.seconds += 2.0
    timer.end_step(1, clock())
    assert timer.totals() == (2, {"data": 3.0})


def test_within_a_section_another_is_not_counted_twice(timer: SectionTimer, clock: Clock) -> None:
    before = timer.enter("forward")
    clock.seconds += 1.0
    inner = timer.enter("data")
    clock.seconds += 5.0
    timer.enter(inner)
    clock.seconds += 1.0
    timer.enter(before)
    timer.end_step(1, clock())
    assert timer.totals() == (1, {"forward": 2.0, "data": 5.0})


def test_a_step_in_which_something_else_was_done_is_left_out(timer: SectionTimer, clock: Clock) -> None:
    spend(timer, clock, data=1.0)
    timer.interrupt()
    spend(timer, clock, data=100.0)
    timer.end_step(1, clock())
    spend(timer, clock, data=2.0)
    timer.end_step(1, clock())
    assert timer.totals() == (1, {"data": 2.0})


def test_the_mean_is_that_of_the_last_minute() -> None:
    means = SectionMeans()
    assert means.add(0.0, 0, {}) == {}
    assert means.add(10.0, 10, {"data": 10.0}) == {"data": 1.0}
    assert means.add(11.0, 10, {"data": 10.0}) == {"data": 1.0}
    assert means.add(60.0, 20, {"data": 40.0}) == {"data": 3.0}
    assert means.add(90.0, 30, {"data": 90.0}) == {"data": 5.0}


def test_of_steps_that_take_longer_than_that_it_is_the_last() -> None:
    means = SectionMeans()
    means.add(300.0, 1, {"data": 7.0})
    means.add(600.0, 2, {"data": 16.0})
    assert means.add(900.0, 3, {"data": 20.0}) == {"data": 4.0}


def test_a_run_records_the_sections_of_its_rank(attempt: Starter) -> None:
    run = attempt()
    with run:
        for step in range(4):
            with trainwarden.section("data"):
                pass
            run.section("forward")
            run.step(step)
    (beat,) = read_ranks(run.folder)
    assert isinstance(beat, RankBeat)
    assert set(beat.sections) == {"data", "forward"}


def test_a_ninth_section_and_what_is_no_name_are_left_out_with_a_warning(
    attempt: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    run = attempt()
    with run, caplog.at_level(logging.WARNING):
        for step in range(3):
            for number in range(MAX_SECTIONS + 1):
                run.section(f"s{number}")
            run.section("no name")
            run.section(7)  # type: ignore[arg-type]  # as a script may
            run.step(step)
    (beat,) = read_ranks(run.folder)
    assert isinstance(beat, RankBeat)
    assert sorted(beat.sections) == [f"s{number}" for number in range(MAX_SECTIONS)]
    assert caplog.text.count("it is not recorded") == 1


def test_a_section_before_and_after_a_run_does_nothing(attempt: Starter) -> None:
    with trainwarden.section("data"):
        pass
    run = attempt()
    with run:
        run.step(1)
    with run.section("data"):
        pass


@cases(
    "sections",
    [7, [], {"data": "x"}, {"data": -1}, {"data": float("inf")}, {"a b": 1.0}, {"1": 1.0}, {"": 1.0}, {"x" * 33: 1.0}],
)
def test_what_is_no_time_of_a_section_is_not_read(sections: object) -> None:
    assert RankBeat.from_json({"rank": 0, "sections": sections}).sections == {}


def test_no_more_than_eight_are_read() -> None:
    beat = RankBeat.from_json({"rank": 0, "sections": {f"s{number}": 1.0 for number in range(100)}})
    assert len(beat.sections) == MAX_SECTIONS
