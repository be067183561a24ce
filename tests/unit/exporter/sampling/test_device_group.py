"""Devices, each sampled in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from tests.waiting import wait_until
from trainwarden_exporter.collectors.rdma import efa_metrics
from trainwarden_exporter.core.exposition import render
from trainwarden_exporter.core.metric import Families, Family
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.sampling.device_group import DeviceGroup
from trainwarden_exporter.sampling.task import SampleTask


class Devices:
    """Two of them."""

    name = "efa"

    def collect(self) -> Iterable[Family]:
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        return [SampleTask(self.name, partial(self._read, device), 0.05, 5.0, device) for device in ("a", "b")]

    def close(self) -> None:
        """Nothing is held."""

    def _read(self, device: str) -> Iterable[Family]:
        families = Families()
        families.add(efa_metrics.EFA_DEVICE_UP, 1, device=device)
        return families.collected()


def test_a_device_for_which_no_thread_is_to_be_had_gets_one_at_a_later_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes that is reached for a moment must not blind the exporter until it is started again."""
    group = DeviceGroup(Devices(), 0.05, 5.0)
    real, refused = threading.Thread.start, iter((False, True, True))

    def start(thread: threading.Thread) -> None:
        if next(refused, False):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    group.start()
    wait_until(lambda: all(f'device="{device}"' in render(group.ready()).decode() for device in "ab"))
    wait_until(lambda: all(status.success for status in group.statuses()))
    group.stop()


def test_what_sums_up_the_devices_is_due_after_them_for_each_scrape() -> None:
    now = 0.0
    times = ScrapeTimes(lambda: now)
    group = DeviceGroup(Devices(), 5.0, 5.0, scrape_times=times)
    for scraped in (0.0, 60.0, 120.0):
        now = scraped
        times.scraped("10.0.0.1:4711")
    discovery = group.samplers()[0].task.interval
    assert times.due(115.0, 115.1, 5.0) == 175.0
    assert times.due(116.0, 116.1, discovery) == 176.0
