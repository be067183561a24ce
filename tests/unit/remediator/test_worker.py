"""The loop outlives what it meets, and says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.metrics import RemediatorCollector


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    made = Simulation(tmp_path / "state", two_phase=True)
    yield made
    made.close()


def loop_success(simulation: Simulation) -> float:
    families = RemediatorCollector(simulation.metrics, simulation.store).collect()
    [family] = [each for each in families if each.name == "trainwarden_remediator_loop_success"]
    return float(family.samples[0].value)


def test_a_loop_that_cannot_do_its_work_logs_it_once(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk: every write fails."""
    caplog.set_level(logging.INFO)

    def full(*_arguments: object) -> None:
        raise OperationalError("UPDATE", None, Exception("database or disk is full"))

    with monkeypatch.context() as broken:
        broken.setattr(simulation.store, "observe", full)
        for _ in range(3):
            simulation.worker.run_once()
        assert loop_success(simulation) == 0
        assert [record.levelname for record in caplog.records] == ["ERROR"]
    simulation.worker.run_once()
    assert loop_success(simulation) == 1
    assert caplog.records[-1].getMessage() == "the loop works again"


def test_the_scheduler_is_read_anew_only_where_something_hangs_on_it(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large cluster, squeue's answer is no small thing; and a restarted job may queue for days."""
    refreshed: list[float] = []
    monkeypatch.setattr(simulation.driver, "refresh", lambda: refreshed.append(simulation.clock.elapsed))
    simulation.silenced = True
    simulation.tick(20)
    assert refreshed == []
    simulation.silenced = False
    simulation.cluster.queues_after_start = True
    simulation.tick(60)
    assert set(refreshed) == set(range(21, 81)), "while the alert waits and the restart is under way"
    simulation.tick(60)
    refreshed.clear()
    simulation.tick(60)
    assert refreshed == []


def test_one_alert_that_cannot_be_examined_is_visible_too(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(_run_id: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(simulation, "run", odd)
    simulation.worker.run_once()
    assert loop_success(simulation) == 0
