"""Sampling: a collector that raises or hangs harms neither the others nor the page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from tests.unit.exporter.runs_tree import RunsTree
from tests.waiting import wait_until
from trainwarden_exporter.core.exposition import render
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task


class Scripted:
    """A collector that yields one sample of `metric`, unless told to raise or to hang."""

    def __init__(self, name: str, metric: str = "") -> None:
        self.name = name
        self.metric = metric or f"{name}_value"
        self.error: BaseException | None = None
        self.release = threading.Event()
        self.release.set()
        self.entered = threading.Event()

    def collect(self) -> Iterable[Metric]:
        self.entered.set()
        self.release.wait()
        if self.error is not None:
            raise self.error
        family = GaugeMetricFamily(self.metric, "Help.")
        family.add_metric([], 1)
        yield family


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def values(page: bytes) -> dict[str, float]:
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if not sample.name.endswith(("build_info", "_released"))
    }


@pytest.fixture
def started() -> Iterator[Callable[..., Collection]]:
    collections: list[Collection] = []
    scripted: list[Scripted] = []

    def start(*collectors: Scripted, timeout: float = 60.0) -> Collection:
        scripted.extend(collectors)
        # The timeout is for the one that hangs: the others must never be late, however slow the machine.
        collection = Collection(
            [Sampler(single_task(each, 0.01, timeout if each.name == "stuck" else 60.0)) for each in collectors]
        )
        collections.append(collection)
        collection.start()
        return collection

    yield start
    for collection in collections:
        collection.stop()
    for collector in scripted:
        collector.release.set()


@pytest.mark.parametrize("error", [ValueError("no such thing"), SystemExit(1), MemoryError()])
def test_a_collector_that_raises_loses_its_own_series_only(
    started: Callable[..., Collection], error: BaseException
) -> None:
    good, bad = Scripted("good"), Scripted("bad")
    bad.error = error
    collection = started(good, bad)
    wait_until(lambda: all(status.attempted for status in collection.statuses()))
    found = values(collection.page())
    assert found["good_value"] == 1
    assert "bad_value" not in found
    assert found["trainwarden_collector_success[good]"] == 1
    assert found["trainwarden_collector_success[bad]"] == 0
    assert "trainwarden_collector_last_success_timestamp_seconds[bad]" not in found


def test_series_vanish_on_failure_and_come_back(started: Callable[..., Collection]) -> None:
    collector = Scripted("one")
    collection = started(collector)
    wait_until(lambda: "one_value" in values(collection.page()))
    collector.error = OSError("mount is gone")
    wait_until(lambda: values(collection.page())["trainwarden_collector_success[one]"] == 0)
    found = values(collection.page())
    assert "one_value" not in found
    assert found["trainwarden_collector_last_success_timestamp_seconds[one]"] > 0
    collector.error = None
    wait_until(lambda: "one_value" in values(collection.page()))


def test_a_collector_that_hangs_loses_its_series_and_neither_page_nor_neighbour_waits(
    started: Callable[..., Collection],
) -> None:
    good, stuck = Scripted("good"), Scripted("stuck")
    collection = started(good, stuck, timeout=0.2)
    wait_until(lambda: {"good_value", "stuck_value"} <= values(collection.page()).keys())
    stuck.release.clear()
    wait_until(lambda: values(collection.page())["trainwarden_collector_success[stuck]"] == 0)
    found = values(collection.page())
    assert "stuck_value" not in found
    assert found["good_value"] == 1
    assert found["trainwarden_collector_duration_seconds[stuck]"] > 0.2
    good.entered.clear()
    wait_until(good.entered.is_set)
    stuck.release.set()
    wait_until(lambda: "stuck_value" in values(collection.page()))


def test_a_collector_that_hangs_from_the_start_counts_as_attempted_after_its_timeout(
    started: Callable[..., Collection],
) -> None:
    stuck = Scripted("stuck")
    stuck.release.clear()
    collection = started(stuck, timeout=0.2)
    wait_until(stuck.entered.is_set)
    assert "trainwarden_collector_success[stuck]" not in values(Collection([]).page())
    wait_until(lambda: collection.statuses()[0].attempted)
    assert values(collection.page())["trainwarden_collector_success[stuck]"] == 0


def test_before_its_first_sample_nothing_is_reported_of_a_collector() -> None:
    collection = Collection([Sampler(single_task(Scripted("one"), 1, 1))])
    assert values(collection.page()) == {}
    assert not collection.statuses()[0].attempted


def test_a_second_collector_of_the_same_series_fails_and_the_page_stays_valid() -> None:
    collection = Collection([Sampler(single_task(Scripted(name, "same_value"), 1, 60)) for name in ("first", "second")])
    for member in collection.runners:
        member.sample_once()
    page = collection.page()
    assert page.count(b"# TYPE same_value ") == 1
    assert values(page)["trainwarden_collector_success[second]"] == 0


def test_an_age_is_true_at_the_scrape_though_sampling_is_late() -> None:
    class Beat:
        name = "beat"

        def collect(self) -> Iterable[Metric]:
            family = GaugeMetricFamily("training_heartbeat_age_seconds", "Help.", labels=["run_id"])
            family.add_metric(["r"], 4)
            return [family]

    clock = Clock()
    sampler = Sampler(single_task(Beat(), 2, 10), wall=clock, monotonic=clock)
    sampler.sample()
    clock.seconds += 55
    assert values(render(sampler.ready())) == {"training_heartbeat_age_seconds[r]": 59}


def test_of_fifty_requests_in_a_row_one_page_is_made_until_a_sample_is_taken_or_it_is_old() -> None:
    class Beat:
        name = "beat"

        def collect(self) -> Iterable[Metric]:
            family = GaugeMetricFamily("training_heartbeat_age_seconds", "Help.", labels=["run_id"])
            family.add_metric(["r"], 4)
            return [family]

    clock = Clock()
    sampler = Sampler(single_task(Beat(), 2, 10), wall=clock, monotonic=clock)
    collection = Collection([sampler])
    made: list[Families] = []
    collection.extra.append(made.append)
    sampler.sample()
    formats = [(only, openmetrics) for only in (None, {"beat"}) for openmetrics in (False, True)]
    pages = {collection.page(only, openmetrics=openmetrics) for only, openmetrics in formats * 50}
    assert (len(pages), len(made)) == (2, 2)
    clock.seconds += 0.15
    assert values(collection.page())["training_heartbeat_age_seconds[r]"] == pytest.approx(4.15)
    assert len(made) == 3
    sampler.sample()
    assert values(collection.page())["training_heartbeat_age_seconds[r]"] == 4
    assert "training_heartbeat_age_seconds" not in collection.page({"other"}).decode()
    assert len(made) == 5


def test_a_page_that_is_too_old_to_be_given_again_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of many runs is megabytes, in each of two formats."""
    clock = Clock()
    monkeypatch.setattr("trainwarden_exporter.sampling.collection.time", SimpleNamespace(monotonic=clock))
    shown = Collection([])
    text, openmetrics = shown.page(), shown.page(openmetrics=True)
    assert shown.page() is text
    assert shown.page(openmetrics=True) is openmetrics
    clock.seconds += 1
    assert shown.page() is not text
    assert list(shown._pages) == [False]


def test_sampling_once_leaves_a_hanging_collector_behind() -> None:
    good, stuck = Scripted("good"), Scripted("stuck")
    stuck.release.clear()
    collection = Collection([Sampler(single_task(stuck, 1, 0.2)), Sampler(single_task(good, 1, 60))])
    collection.sample_once()
    assert [status.success for status in collection.statuses()] == [False, True]
    assert values(collection.page())["good_value"] == 1
    stuck.release.set()


def test_a_failure_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    collector = Scripted("one")
    collector.error = ValueError("first")
    sampler = Sampler(single_task(collector, 1, 60))
    sampler.sample()
    sampler.sample()
    collector.error = ValueError("second")
    sampler.sample()
    assert [message.rpartition(" ")[2] for message in caplog.messages] == ["first", "second"]


def test_a_collector_of_ours_works_in_a_registry_of_the_users(runs: RunsTree) -> None:
    runs.metadata("r")
    registry = CollectorRegistry()
    registry.register(runs.collector)  # type: ignore[arg-type]  # its families have what a Metric has
    assert registry.get_sample_value("training_run_state", {"run_id": "r", "state": "running"}) == 1


class RecordedScrapes(ScrapeTimes):
    """The scrapes of one collector."""

    def __init__(self) -> None:
        super().__init__()
        self.scrapes: list[str] = []

    def scraped(self, client: str) -> None:
        self.scrapes.append(client)


def test_a_scrape_is_passed_on_to_what_it_shows_and_by_a_view_to_what_that_reads() -> None:
    runs, devices, behind = RecordedScrapes(), RecordedScrapes(), RecordedScrapes()

    def sampler(name: str, times: ScrapeTimes | None) -> Sampler:
        return Sampler(single_task(Scripted(name), 60.0, 5.0), scrape_times=times)

    shown = [sampler("runs", runs), sampler("devices", devices), sampler("view", None)]
    collection = Collection(shown, [sampler("behind", behind)])
    collection.scraped({"runs"}, "a:1")
    assert (runs.scrapes, devices.scrapes, behind.scrapes) == (["a:1"], [], [])
    collection.scraped({"view"}, "b:2")
    collection.scraped(None, "c:3")
    assert runs.scrapes == ["a:1", "b:2", "c:3"]
    assert devices.scrapes == behind.scrapes == ["b:2", "c:3"]
