"""The loop outlives what it meets, and says so."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from tests.unit.remediator.simulation import Simulation
from tests.unit.remediator.test_store import full_disk
from trainwarden_remediator.database.database import FILE
from trainwarden_remediator.incidents.incident import Alert
from trainwarden_remediator.incidents.webhook import Delivery
from trainwarden_remediator.metrics import RemediatorCollector


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


def test_a_webhook_that_cannot_be_stored_shows_until_one_could_be(simulation: Simulation) -> None:
    """Nothing else is to be written meanwhile."""
    simulation.silenced = True
    simulation.worker.run_once()
    with full_disk(simulation.engine):
        simulation.worker.run_once()
        assert loop_success(simulation) == 1
        labels = {**simulation.alerts_now()[0].labels, "text": "x" * 100_000}
        with pytest.raises(SQLAlchemyError, match="full"):
            simulation.store.receive(Delivery("x", (Alert(labels, 1.0),), 0))
        for _ in range(2):
            simulation.worker.run_once()
            assert loop_success(simulation) == 0
    simulation.worker.run_once()
    assert loop_success(simulation) == 1


def test_a_sweep_that_fails_keeps_no_run_waiting(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("a job that nobody thought of")

    monkeypatch.setattr(simulation.worker._sweeper, "sweep", fail)
    simulation.tick(30)
    assert [start.ours for start in simulation.clusters[0].starts] == [True]
    simulation.worker.run_once()
    assert loop_success(simulation) == 0


def test_storms_that_cannot_be_judged_hold_back_new_restarts_and_no_others(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("a label that nobody thought of")

    simulation.tick(2)
    assert simulation.driver.calls == ["prepare: none"]
    monkeypatch.setattr(simulation.worker._storms, "watch", fail)
    simulation.tick(30)
    assert [start.ours for start in simulation.clusters[0].starts] == [True], "it had been begun, and is finished"
    simulation.cluster.crash()
    calls = list(simulation.driver.calls)
    simulation.tick(200)
    assert simulation.driver.calls == calls
    simulation.worker.run_once()
    assert loop_success(simulation) == 0
    monkeypatch.undo()
    simulation.settle()
    assert len(simulation.driver.calls) > len(calls)


def test_the_scheduler_is_read_anew_only_where_something_hangs_on_it(simulation: Simulation) -> None:
    """Of a large cluster, squeue's answer is no small thing; and a restarted job may queue for days."""
    read = simulation.driver.snapshots
    simulation.silenced = True
    simulation.tick()
    read.clear()  # at the start all jobs are read for those that are held
    simulation.tick(19)
    assert read == []
    simulation.silenced = False
    simulation.cluster.queues_after_start = True
    simulation.tick(60)
    assert {when for when, _ in read} == set(range(21, 81)), "while the alert waits and the restart is under way"
    simulation.tick(60)
    read.clear()
    simulation.tick(60)
    times = [when for when, _ in read]
    assert [later - earlier for earlier, later in pairwise(times)] == [15] * 3


def test_one_alert_that_cannot_be_examined_is_visible_too(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(_run_id: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(simulation, "run", odd)
    simulation.worker.run_once()
    assert loop_success(simulation) == 0


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_that_was_deleted_under_it_is_noticed(
    simulation: Simulation, tmp_path: Path, caplog: pytest.LogCaptureFixture, replaced: bool
) -> None:
    """SQLite goes on with the file that has no name any more: all would be lost with the process."""
    simulation.silenced = True
    simulation.worker.run_once()
    assert loop_success(simulation) == 1
    file = tmp_path / "state" / FILE
    file.rename(tmp_path / "elsewhere")
    if replaced:
        file.write_bytes((tmp_path / "elsewhere").read_bytes())
    simulation.worker.run_once()
    assert loop_success(simulation) == 0
    assert "the database was deleted or replaced" in caplog.text
    with pytest.raises(SQLAlchemyError, match="deleted or replaced"):
        simulation.store.receive(Delivery("x", tuple(simulation.alerts_now()), 0))
    assert simulation.driver.calls == []
