"""A database that an older remediator has written is opened by this one, which goes on with what it finds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.unit.remediator.simulated_cluster import RUN, FakeClock
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.database import audit
from trainwarden_remediator.database.database import FILE, open_database
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.errors import StoreError
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.store.store import Store

VERSION_1 = (Path(__file__).parent / "version_1.sql").read_text(encoding="utf-8")
V2 = """
CREATE TABLE about (key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (key));
INSERT INTO about VALUES ('schema', '2'), ('database', 'abc');
CREATE TABLE alerts (key TEXT NOT NULL, labels TEXT NOT NULL, starts_at FLOAT, source TEXT NOT NULL,
    received FLOAT NOT NULL, last_seen FLOAT NOT NULL, pending BOOLEAN NOT NULL, dropped BOOLEAN NOT NULL,
    waits_for TEXT, incident_id TEXT, PRIMARY KEY (key));
INSERT INTO alerts VALUES
    ('k1', '{"alertname": "A", "run_id": "r", "cluster": "c1"}', 1.0, 'poll', 1.0, 1.0, 0, 0, NULL, 'i1'),
    ('k2', '{"alertname": "A", "run_id": "s"}', 1.0, 'poll', 1.0, 1.0, 1, 0, NULL, NULL);
CREATE TABLE incidents (number INTEGER NOT NULL, id TEXT NOT NULL, run_id TEXT NOT NULL, attempt BIGINT,
    attempt_key TEXT, job_id TEXT, scheduler TEXT, alert TEXT NOT NULL, failure_mode TEXT NOT NULL, error_type TEXT,
    state TEXT NOT NULL, action TEXT NOT NULL, reason TEXT NOT NULL, policy TEXT NOT NULL, budget_used INTEGER,
    budget_limit INTEGER, step_before FLOAT, checkpoint_step FLOAT, created FLOAT NOT NULL, updated FLOAT NOT NULL,
    not_before FLOAT NOT NULL, calls INTEGER NOT NULL, committed FLOAT, deadline FLOAT, paging BOOLEAN NOT NULL,
    PRIMARY KEY (number), UNIQUE (id));
CREATE UNIQUE INDEX one_restart_per_attempt ON incidents (run_id, attempt_key) WHERE action = 'restart';
CREATE INDEX incidents_by_run ON incidents (run_id);
INSERT INTO incidents VALUES
    (1, 'i1', 'r', 0, 'sim:1:0', '1', 'sim', 'A', 'stall', NULL, 'DONE', 'restart', 'why', 'p', 0, 3, 1.0, NULL,
     1.0, 1.0, 0.0, 1, 1.0, NULL, 0),
    (2, 'i2', 'q', 0, 'sim:2:0', '2', 'sim', 'A', 'stall', NULL, 'IN_DOUBT', 'restart', 'why', 'p', 0, 3, 1.0, NULL,
     1.0, 1.0, 0.0, 1, NULL, NULL, 0);
"""


def test_a_database_of_version_2_keeps_its_incidents_and_alerts_and_learns_their_clusters(tmp_path: Path) -> None:
    _write(tmp_path, V2)
    engine = open_database(tmp_path)
    store = Store(engine, FakeClock())
    assert [(each.id, each.cluster, each.state) for each in store.of_run("r")] == [("i1", "c1", State.DONE)]
    assert [(each.id, each.cluster) for each in store.open_incidents()] == [("i2", "")]
    assert used(store, "r", "c1") == {"stall": 1}
    assert used(store, "r", "c2") == {}
    assert used(store, "q", "c1") == {"stall": 1}, "on record without a cluster: it counts for every one"
    assert [each.alert.labels["run_id"] for each in store.pending()] == ["s"]
    assert store.database == "abc"
    fresh = open_database(_folder(tmp_path / "new"))
    assert _names(engine) == _names(fresh)
    for each in (engine, fresh):
        each.dispose()


def test_a_restart_that_a_remediator_of_version_1_has_left_in_doubt_is_finished_by_this_one(tmp_path: Path) -> None:
    """Its release had no answer; the start that it gave is found, and not given again."""
    _write(tmp_path, VERSION_1)
    simulation = Simulation(tmp_path)
    [incident] = simulation.store.open_incidents()
    assert (incident.state, incident.attempt_key, incident.cluster) == (State.COMMITTED, "sim:17:1", "")
    assert used(simulation.store, RUN, "c1") == {"stall": 1, "crash": 1}
    cluster = simulation.cluster
    cluster.generation, cluster.attempt, cluster.attempt_key, cluster.state = 2, 2, "sim:17:2", JobState.RUNNING
    cluster.step, cluster.high_water, cluster.hangs = 42.0, 42.0, False
    simulation.settle()
    assert [each.state for each in simulation.store.of_run(RUN)] == [State.DONE, State.DONE]
    assert simulation.driver.calls == []
    simulation.switch(lambda connection, _: _is_whole(connection))
    simulation.close()


def test_the_next_failure_of_a_run_of_version_1_is_within_the_same_budget(tmp_path: Path) -> None:
    _write(tmp_path, VERSION_1)
    simulation = Simulation(tmp_path)
    cluster = simulation.cluster
    cluster.generation, cluster.attempt, cluster.attempt_key = 2, 2, "sim:17:2"
    cluster.step, cluster.high_water, cluster.hangs = 42.0, 42.0, False
    simulation.tick(5)
    cluster.fails_after_start = True
    cluster.crash()
    simulation.settle()
    assert simulation.our_starts == [2], "two after a crash in all"
    assert simulation.store.of_run(RUN)[-1].state is State.ESCALATED
    simulation.close()


def test_a_database_of_version_3_goes_on_and_keeps_from_then_on_which_job_comes_after_which(tmp_path: Path) -> None:
    older = Simulation(tmp_path)
    older.driver.down = True
    older.tick(3)
    older.driver.down = False
    older.tick(1)
    [incident] = older.store.open_incidents()
    older.switch(_as_version_3)
    older.close()
    newer = Simulation(tmp_path)
    [found] = newer.store.open_incidents()
    assert (found.id, found.shape, found.successor) == (incident.id, "", None)
    newer.settle()
    assert newer.our_starts == [0]
    assert newer.store.incident(incident.id).state is State.DONE
    newer.close()


def test_a_database_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    _write(tmp_path, VERSION_1)
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("UPDATE about SET value = '99' WHERE key = 'schema'")
    connection.commit()
    before = list(connection.iterdump())
    with pytest.raises(StoreError, match="schema version 99, of a newer remediator"):
        open_database(tmp_path)
    assert list(connection.iterdump()) == before
    connection.close()


def _as_version_3(connection: sa.Connection, _now: float) -> None:
    for statement in (
        "DROP INDEX incidents_by_successor",
        "ALTER TABLE incidents DROP COLUMN shape",
        "ALTER TABLE incidents DROP COLUMN successor",
        "UPDATE about SET value = '3' WHERE key = 'schema'",
    ):
        connection.exec_driver_sql(statement)


def _is_whole(connection: sa.Connection) -> None:
    assert audit.verify(connection).broken is None


def used(store: Store, run_id: str, cluster: str = "") -> dict[str, int]:
    """Return the restarts on record, by failure mode."""
    return Counter(each.mode for each in store.past_restarts(run_id, cluster))


def _write(folder: Path, script: str) -> None:
    connection = sqlite3.connect(folder / FILE)
    connection.executescript(script)
    connection.close()


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _names(engine: sa.Engine) -> set[str]:
    with engine.begin() as connection:
        return set(connection.exec_driver_sql("SELECT type || ' ' || name FROM sqlite_master").scalars())
