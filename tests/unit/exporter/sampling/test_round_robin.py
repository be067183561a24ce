"""Devices in turn: one that does not answer costs only itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from tests.waiting import wait_until
from trainwarden_exporter.collectors.rdma import efa_metrics
from trainwarden_exporter.core.exposition import render
from trainwarden_exporter.core.metric import Families, Family
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.sampling import device_group as rounds
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.device_group import DeviceGroup
from trainwarden_exporter.sampling.task import SampleTask


class Ports:
    """Devices of which some block until they are let go."""

    name = "efa"

    def __init__(self, *devices: str) -> None:
        self.devices = list(devices)
        self.blocked: set[str] = set()
        self.go = threading.Event()
        self.samples: Counter[str] = Counter()
        self.threads: set[int] = set()

    def collect(self) -> Iterable[Family]:
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        return [SampleTask("efa", lambda name=each: self.read(name), 0.02, 0.3, each) for each in self.devices]  # type: ignore[misc]  # bound early

    def read(self, device: str) -> Iterable[Family]:
        if device in self.blocked:
            with calling("pread"):
                self.go.wait()
        self.threads.add(threading.get_ident())
        self.samples[device] += 1
        families = Families()
        families.add(efa_metrics.EFA_READ_ERRORS_TOTAL, 0, device=device)
        return families.collected()

    def close(self) -> None:
        self.go.set()


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    monkeypatch.setattr(rounds, "STUCK_SECONDS", 0.05)
    return Ports("a", "b", "c")


@pytest.fixture
def group(ports: Ports) -> Iterator[DeviceGroup]:
    group = DeviceGroup(ports, 0.02, 5.0, in_turn=True)
    group.start()
    yield group
    group.stop()
    ports.go.set()


def shown(group: DeviceGroup) -> str:
    return render(group.ready()).decode()


def test_all_devices_are_sampled_again_and_again_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "STUCK_SECONDS", 60.0)  # that of a machine on which nothing is ever late
    ports = Ports("a", "b", "c")
    group = DeviceGroup(ports, 0.02, 5.0, in_turn=True)
    group.start()
    wait_until(lambda: all(ports.samples[device] > 3 for device in "abc"))
    group.stop()
    assert len(ports.threads) == 1


def test_one_that_blocks_is_named_and_the_others_go_on(ports: Ports, group: DeviceGroup) -> None:
    wait_until(lambda: all(ports.samples[device] for device in "abc"))
    ports.blocked.add("b")
    wait_until(lambda: [status.call for status in group.statuses() if status.stuck] == ["pread"])
    before = Counter(ports.samples)
    wait_until(lambda: all(ports.samples[device] > before[device] + 3 for device in "ac"))
    assert ports.samples["b"] == before["b"]
    assert 'device="b"' not in shown(group)
    wait_until(lambda: 'device="c"' in shown(group))
    ports.blocked.clear()
    ports.go.set()
    wait_until(lambda: 'device="b"' in shown(group))
    wait_until(lambda: ports.samples["b"] > before["b"] + 3)


def test_a_device_that_comes_late_does_not_wait_for_the_next_round(ports: Ports) -> None:
    group = DeviceGroup(ports, 60.0, 5.0, in_turn=True)  # only a new device can begin the next round
    group.start()
    wait_until(lambda: all(ports.samples[device] for device in "abc"))
    ports.devices.append("d")
    group.samplers()[0].sample_once()  # discovers it
    wait_until(lambda: ports.samples["d"])
    group.stop()


def test_the_next_round_begins_when_scrapes_ask_for_it(ports: Ports) -> None:
    class Asked(ScrapeTimes):
        now = False

        def due(self, begun: float, ended: float, interval: float) -> float:
            return ended if self.now else begun + 3600.0

    times = Asked()
    group = DeviceGroup(ports, 0.02, 5.0, in_turn=True, scrape_times=times)
    group.start()
    wait_until(lambda: all(ports.samples[device] for device in "abc"))
    ports.devices.append("d")
    group.samplers()[0].sample_once()
    wait_until(lambda: ports.samples["d"])  # a new device waits for no scrape
    before = Counter(ports.samples)
    times.now = True
    times.wake()
    wait_until(lambda: all(ports.samples[device] > before[device] for device in "abc"))
    group.stop()


def test_a_release_ends_the_turns_and_the_devices_have_them_again_after(ports: Ports, group: DeviceGroup) -> None:
    wait_until(lambda: all(ports.samples[device] for device in "abc"))
    assert group.release()
    before = Counter(ports.samples)
    assert shown(group).count("efa_read_errors") == 0
    group.resume()
    wait_until(lambda: all(ports.samples[device] > before[device] for device in "abc"))
