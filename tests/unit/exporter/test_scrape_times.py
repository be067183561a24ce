"""Samples are taken as often as somebody scrapes, shortly before, and not more often."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from tests.cases import cases
from tests.waiting import wait_until
from trainwarden_exporter.core.metric import Families, Family, gauge
from trainwarden_exporter.core.scrape_times import LONGEST_SECONDS, ScrapeTimes
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask

INTERVAL, TAKES = 2.0, 0.05
METRIC = gauge("m", "label", "1", "of a test", "a test", "m")


class Simulation:
    """Ten minutes of one sampler and scrapes, each in its own time."""

    def __init__(self, scrapes: Mapping[float, str], changes: tuple[float, ...] = (), seconds: float = 600.0) -> None:
        self.now = 0.0
        times = ScrapeTimes(lambda: self.now)
        coming, changing = sorted(scrapes.items()), sorted(changes)
        self.samples: list[float] = []
        self.ages: dict[float, float] = {}
        due = 0.0
        while self.now < seconds:
            happens = min(due, coming[0][0] if coming else seconds, changing[0] if changing else seconds, seconds)
            self.now = happens = max(happens, self.now)
            if coming and coming[0][0] <= happens:
                _, client = coming.pop(0)
                self.ages[happens] = happens - self.samples[-1]
                times.scraped(client)
            elif changing and changing[0] <= happens:
                changing.pop(0)
                times.shown_has_changed()
            elif due <= happens:
                self.samples.append(happens)
                self.now = happens + TAKES
            due = times.due(self.samples[-1], self.samples[-1] + TAKES, INTERVAL)

    def taken(self, begin: float, end: float) -> int:
        return sum(begin <= each < end for each in self.samples)

    def oldest(self, begin: float, end: float) -> float:
        return max(age for time, age in self.ages.items() if begin <= time < end)


def every(period: float, client: str, offset: float = 3.7, end: float = 600.0) -> dict[float, str]:
    return {offset + number * period: client for number in range(int((end - offset) / period) + 1)}


def test_nobody_scrapes() -> None:
    simulation = Simulation({})
    assert simulation.taken(120, 600) == 480 / LONGEST_SECONDS


@cases("period", [10, 15, 30, 60])
def test_one_scraper_has_one_sample_for_each_scrape_and_none_is_old(period: float) -> None:
    simulation = Simulation(every(period, "a:1"))
    assert simulation.taken(120, 600) == pytest.approx(480 / period, abs=1)
    assert simulation.oldest(0, 600) <= INTERVAL + TAKES


def test_one_that_scrapes_faster_than_the_interval_has_no_more_samples_than_that() -> None:
    simulation = Simulation(every(0.5, "a:1"))
    assert simulation.taken(120, 600) == pytest.approx(480 / (INTERVAL + TAKES), abs=2)


@cases("offset", [4.0, 4.9, 9.2])
def test_two_scrapers_have_a_sample_each(offset: float) -> None:
    simulation = Simulation({**every(15, "a:1"), **every(15, "b:1", offset)})
    assert simulation.taken(120, 600) <= 2 * 480 / 15 + 2
    assert simulation.oldest(0, 600) <= INTERVAL + 0.5


def test_two_scrapers_behind_one_address_are_known_by_their_connections() -> None:
    simulation = Simulation({**every(15, "a:1"), **every(30, "a:2", 10.0)})
    assert simulation.taken(120, 600) <= 480 / 15 + 480 / 30 + 2
    assert simulation.oldest(0, 600) <= INTERVAL + 0.5


def test_a_scraper_that_connects_anew_each_time_is_known_by_its_host() -> None:
    scrapes = {time: f"a:{number}" for number, time in enumerate(every(15, ""))}
    simulation = Simulation(scrapes)
    assert simulation.oldest(0, 600) <= INTERVAL + 0.5
    assert simulation.taken(120, 600) <= 480 / 15 + 2


def test_a_missed_scrape_changes_nothing_and_a_scraper_that_is_gone_is_forgotten() -> None:
    scrapes = every(15, "a:1", end=300)
    del scrapes[3.7 + 10 * 15]
    simulation = Simulation(scrapes)
    assert simulation.oldest(0, 300) <= INTERVAL + TAKES
    assert simulation.taken(420, 600) <= 180 / LONGEST_SECONDS + 1


def test_a_slower_interval_is_learned() -> None:
    simulation = Simulation({**every(15, "a:1", end=150), **every(60, "a:1", 200.0)})
    assert simulation.taken(400, 600) <= 5
    assert simulation.oldest(330, 600) <= INTERVAL + TAKES


def test_the_second_scrape_of_one_that_comes_later_may_find_a_sample_of_its_first_and_no_later_one() -> None:
    simulation = Simulation({**every(60, "a:1"), **every(15, "b:1", 301.0)})
    assert simulation.ages[316.0] <= 15 + TAKES
    assert simulation.oldest(320, 600) <= INTERVAL + 0.5


def test_after_a_change_samples_follow_each_other_at_their_interval() -> None:
    simulation = Simulation(every(60, "a:1", 8.0), changes=(400.0,))
    assert simulation.taken(400, 410) == pytest.approx(10 / (INTERVAL + TAKES), abs=1)
    assert simulation.taken(412, 480) <= 2


def test_a_scrape_that_comes_out_of_turn_has_the_next_sample_taken_at_once() -> None:
    simulation = Simulation({**every(60, "a:1", 8.0), 450.0: "curl:1"})
    assert [each for each in simulation.samples if 430 < each < 480] == [450.0]


def test_samplers_that_wait_are_woken_by_a_scrape_and_by_what_another_finds_and_end_at_once() -> None:
    clock = [0.0]
    times = ScrapeTimes(lambda: clock[0])
    counts = {"first": 0, "second": 0}
    shown = {"first": "x", "second": "y"}

    def sampler(name: str) -> Sampler:
        def read() -> list[Family]:
            counts[name] += 1
            families = Families()
            families.add(METRIC, 1, label=shown[name])
            return families.collected()

        return Sampler(SampleTask(name, read, 0.01, 5.0), monotonic=lambda: clock[0], scrape_times=times)

    samplers = [sampler(name) for name in counts]
    for each in samplers:
        each.sample()
    clock[0] = 1000.0  # what is shown has not changed for long
    collection = Collection(samplers)
    collection.start()
    wait_until(lambda: counts == {"first": 2, "second": 2})
    shown["first"] = "other"
    clock[0] = 1030.0
    collection.scraped({"runs"}, "a:1")
    collection.scraped(None, "a:1")  # finds samples that are old: the next are taken at once
    wait_until(lambda: counts == {"first": 3, "second": 3})
    clock[0] = 1031.0
    wait_until(lambda: counts == {"first": 4, "second": 4})
    collection.stop()
    for each in samplers:
        assert each.join(30)


class CountedLooks(threading.Event):
    """Counts how often a thread that waits has looked at it."""

    looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        return super().is_set()


def test_a_scrape_that_comes_as_expected_wakes_no_sampler_and_one_out_of_turn_does() -> None:
    clock = [0.0]
    times, stop = ScrapeTimes(lambda: clock[0]), CountedLooks()
    for clock[0] in (70.0, 85.0, 100.0):
        times.scraped("a:1")
    clock[0] = 110.0
    assert times.due(110.0, 110.1, 5.0) == 125.0
    waiting = threading.Thread(target=times.wait, args=(110.0, 110.1, 5.0, stop), daemon=True)
    waiting.start()
    wait_until(lambda: stop.looks == 1)
    clock[0] = 115.0
    times.scraped("a:1")
    assert waiting.is_alive()
    clock[0] = 120.0
    times.scraped("b:1")
    waiting.join(10)
    assert not waiting.is_alive()
    assert stop.looks == 2


def test_a_crowd_of_connections_is_not_remembered() -> None:
    now = 0.0
    times = ScrapeTimes(lambda: now)
    for number in range(1000):
        now += 0.01
        times.scraped(f"10.0.0.{number % 250}:{number}")
    assert len(times._scrapers) <= 128
    assert "10.0.0.249:999" in times._scrapers
