"""Devices, each sampled in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from tests.unit.exporter.sampling.conftest import eventually
from trainwarden_exporter.catalog import Families
from trainwarden_exporter.exposition import render
from trainwarden_exporter.metric import Family
from trainwarden_exporter.sampling.fleet import Fleet
from trainwarden_exporter.sampling.part import Part


class Devices:
    """Two of them."""

    name = "efa"

    def collect(self) -> Iterable[Family]:
        return ()

    def parts(self) -> Sequence[Part]:
        return [Part(self.name, partial(self._read, device), 0.05, 5.0, device) for device in ("a", "b")]

    def close(self) -> None:
        """Nothing is held."""

    def _read(self, device: str) -> Iterable[Family]:
        families = Families()
        families.add("efa_device_up", 1, device=device)
        return families.collected()


def test_a_device_for_which_no_thread_is_to_be_had_gets_one_at_a_later_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes that is reached for a moment must not blind the exporter until it is started again."""
    fleet = Fleet(Devices(), 0.05, 5.0)
    real, refused = threading.Thread.start, iter((False, True, True))

    def start(thread: threading.Thread) -> None:
        if next(refused, False):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    fleet.start()
    eventually(lambda: all(f'device="{device}"' in render(fleet.ready()).decode() for device in "ab"))
    eventually(lambda: all(status.success for status in fleet.statuses()))
    fleet.stop()
