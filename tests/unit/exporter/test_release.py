"""Devices are let go of so that they can be reset, and taken again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import wait_until
from trainwarden_exporter.collectors.runs import metrics, rank_metrics
from trainwarden_exporter.core.metric import Families, Family
from trainwarden_exporter.release import Release
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.device_group import DeviceGroup
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask, single_task


class Devices:
    """Two devices, handles to which are kept open; the first can be made to hang."""

    name = "gpus"

    def __init__(self) -> None:
        self.handles: set[str] = set()
        self.go = threading.Event()
        self.go.set()

    def collect(self) -> Iterable[Family]:
        self.handles |= {"0", "1"}
        return ()

    def tasks(self) -> list[SampleTask]:
        return [SampleTask(self.name, partial(self.read, device), 0.01, 60, device) for device in ("0", "1")]

    def read(self, device: str) -> Iterable[Family]:
        if device == "0":
            self.go.wait()
        assert device in self.handles, "a device is read that was released"
        families = Families()
        families.add(rank_metrics.TRAINING_RANK_STEP, 1, run_id="x", rank=device)
        return families.collected()

    def close(self) -> None:
        self.handles.clear()


class Other:
    """Holds no device."""

    name = "runs"

    def collect(self) -> Iterable[Family]:
        families = Families()
        families.add(metrics.TRAINING_STEP, 1, run_id="x")
        return families.collected()


class Bench:
    """A running collection with devices, and what releases them, on a clock that stands."""

    def __init__(self, file: Path) -> None:
        self.now = 0.0
        self.file = file
        self.devices = Devices()
        self.group = DeviceGroup(self.devices, 0.01, 60)
        self.collection = Collection([self.group, Sampler(single_task(Other(), 0.01, 60))])
        self.release = Release(self.collection, 300.0, file, lambda: self.now)

    def page(self) -> str:
        return self.collection.page().decode()

    def shows_devices(self) -> bool:
        return 'rank="0"' in self.page() and 'rank="1"' in self.page()

    def is_released(self) -> bool:
        return "trainwarden_exporter_released 1.0" in self.page()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "release")
    made.collection.start()
    wait_until(made.shows_devices)
    wait_until(lambda: 'trainwarden_collector_success{collector="runs"} 1.0' in made.page())
    yield made
    made.devices.go.set()
    made.collection.stop()


def test_a_signal_releases_every_device_for_a_time(bench: Bench) -> None:
    bench.release.toggle()
    assert bench.is_released()
    assert not bench.devices.handles
    assert 'rank="0"' not in bench.page()
    # Neither good nor bad; and what holds no device goes on.
    assert 'trainwarden_collector_success{collector="gpus"}' not in bench.page()
    assert 'trainwarden_collector_success{collector="runs"} 1.0' in bench.page()
    bench.now = 299.0
    bench.release.tick()
    assert bench.is_released()
    bench.now = 300.0
    bench.release.tick()
    assert not bench.is_released()
    wait_until(bench.shows_devices)
    wait_until(lambda: 'trainwarden_collector_success{collector="gpus"} 1.0' in bench.page())


def test_without_a_file_the_time_is_watched_only_while_devices_are_released(bench: Bench) -> None:
    needed = [bench.release.needs_ticks]
    bench.release.file = None
    needed.append(bench.release.needs_ticks)
    bench.release.toggle()
    needed.append(bench.release.needs_ticks)
    bench.now = 300.0
    bench.release.tick()
    needed.append(bench.release.needs_ticks)
    assert needed == [True, False, True, False]
    assert not bench.is_released()


def test_a_second_signal_takes_them_again_at_once(bench: Bench) -> None:
    bench.release.toggle()
    bench.release.toggle()
    assert not bench.is_released()
    wait_until(bench.shows_devices)


def test_devices_are_released_while_a_file_exists_whatever_signals_come(bench: Bench) -> None:
    bench.file.touch()
    bench.release.tick()
    assert bench.is_released()
    bench.release.toggle()
    bench.release.toggle()
    bench.now = 10_000.0
    bench.release.tick()
    assert bench.is_released()
    bench.file.unlink()
    bench.release.tick()
    assert not bench.is_released()
    wait_until(bench.shows_devices)


@pytest.mark.slow
def test_what_hangs_is_named_stays_in_sight_and_is_released_once_it_can_be(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.devices.go.clear()
    hanging = bench.group.samplers()[1]
    wait_until(hanging.running)
    bench.release.toggle()
    assert "not released: gpus" in caplog.text
    assert not bench.is_released()
    assert "all devices are released" not in caplog.text
    bench.devices.handles.add("0")  # as far as the hanging call goes on
    bench.devices.go.set()
    wait_until(lambda: not hanging.running())
    bench.release.tick()
    assert bench.is_released()
    assert not bench.devices.handles
    assert "all devices are released" in caplog.text
    bench.release.toggle()
    wait_until(bench.shows_devices)


@pytest.mark.slow
def test_what_hung_while_devices_were_taken_again_is_sampled_once_it_comes_back(bench: Bench) -> None:
    bench.devices.go.clear()
    hanging = bench.group.samplers()[1]
    wait_until(hanging.running)
    bench.release.toggle()
    bench.release.toggle()
    assert hanging in bench.group.samplers()
    bench.devices.go.set()
    wait_until(lambda: hanging not in bench.group.samplers() and bench.shows_devices())


def test_states_of_released_parts_show_it(bench: Bench) -> None:
    bench.release.toggle()
    assert {status.released for status in bench.collection.statuses() if status.name == "gpus"} == {True}
    assert {status.released for status in bench.collection.statuses() if status.name == "runs"} == {False}
