"""What is durable, what is unique, and what may run beside the writer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from tests.unit.remediator.simulated_cluster import FakeClock
from tests.unit.remediator.simulation import Crash
from trainwarden_remediator.database.database import FILE, Lock, open_database, open_read_only
from trainwarden_remediator.database.schema import about, alerts, deliveries, incidents, switches
from trainwarden_remediator.errors import StoreError
from trainwarden_remediator.incidents.alert_rows import Pending
from trainwarden_remediator.incidents.incident import Action, Alert, Incident, State
from trainwarden_remediator.incidents.webhook import Delivery
from trainwarden_remediator.store.store import StaleIncident, Store

ALERT = Alert({"alertname": "TrainRunFailed", "run_id": "r", "attempt": "0", "remediate": "true"}, 100.0)


def used(store: Store, run_id: str, cluster: str = "") -> dict[str, int]:
    return Counter(each.mode for each in store.past_restarts(run_id, cluster))


def incident(number: int = 1, **changes: Any) -> Incident:
    values: dict[str, Any] = {
        "id": f"i{number}",
        "run_id": "r",
        "attempt": 0,
        "attempt_key": "sim:1:0",
        "job_id": "1",
        "scheduler": "sim",
        "alert": "TrainRunFailed",
        "failure_mode": "crash",
        "error_type": None,
        "state": State.PROPOSED,
        "action": Action.RESTART,
        "reason": "why",
        "policy": "p",
        "budget_used": 0,
        "budget_limit": 2,
        "step_before": 1.0,
        "created": 1.0,
        "updated": 1.0,
    }
    return Incident(**{**values, **changes})


class Dying:
    """A crashpoint that dies at the named point."""

    def __init__(self) -> None:
        self.at: str | None = None

    def __call__(self, name: str) -> None:
        if name == self.at:
            raise Crash(name)


@pytest.fixture
def dying() -> Dying:
    return Dying()


@pytest.fixture
def store(tmp_path: Path, dying: Dying) -> Iterator[Store]:
    engine = open_database(tmp_path)
    yield Store(engine, FakeClock(), dying)
    engine.dispose()


def pending(store: Store) -> list[Alert]:
    return [each.alert for each in store.pending()]


def test_commits_survive_power_loss_as_far_as_sqlite_can_promise(tmp_path: Path) -> None:
    engine = open_database(tmp_path)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    engine.dispose()


def test_an_alert_is_kept_whole_or_not_at_all(store: Store, dying: Dying) -> None:
    """S5: what was not committed was not acknowledged either."""
    for point, kept in (("receive: before commit", []), ("receive: after commit", [ALERT])):
        dying.at = point
        with pytest.raises(Crash):
            store.receive(Delivery("x", (ALERT,), 0))
        assert pending(store) == kept


def test_the_same_alert_by_webhook_and_by_poll_is_one(store: Store) -> None:
    store.receive(Delivery("x", (ALERT, ALERT), 0))
    store.receive(Delivery("x", (ALERT,), 0))
    store.observe([Alert(ALERT.labels, 100.0004)])
    assert pending(store) == [ALERT]


def test_an_answered_alert_is_not_looked_at_again_unless_it_begins_anew(store: Store) -> None:
    store.observe([ALERT])
    assert store.propose(store.pending()[0], incident()) is not None
    store.observe([ALERT])
    assert pending(store) == []
    again = Alert(ALERT.labels, 200.0)
    store.observe([again])
    assert pending(store) == [again]


def test_an_alert_that_was_not_active_is_looked_at_again_when_it_is_seen_again(store: Store) -> None:
    store.observe([ALERT])
    nothing = incident(action=Action.NONE, state=State.SUPPRESSED)
    assert store.propose(store.pending()[0], nothing, dropped=True) is not None
    assert pending(store) == []
    store.observe([ALERT])
    assert pending(store) == [ALERT]
    assert store.propose(store.pending()[0], incident(2, action=Action.NONE, state=State.SUPPRESSED)) is None
    assert [each.id for each in store.of_run("r")] == ["i1"], "the same decision for the same reason is one row"


def test_what_is_over_is_forgotten_after_thirty_days_and_incidents_never(tmp_path: Path) -> None:
    clock, day = FakeClock(), 86400
    engine = open_database(tmp_path)
    store = Store(engine, clock)
    unanswered = Alert({**ALERT.labels, "attempt": "1"}, 100.0)
    store.receive(Delivery("old", (ALERT, unanswered), 0))
    store.propose(store.pending()[0], incident())

    def rows(table: sa.Table) -> int:
        with engine.begin() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()

    for days, alert_rows, delivery_rows in ((29, 2, 1), (2, 1, 0)):
        clock.elapsed += days * day
        store.prune()
        assert (rows(alerts), rows(deliveries)) == (alert_rows, delivery_rows)
    assert pending(store) == [unanswered]
    assert [each.id for each in store.of_run("r")] == ["i1"]
    engine.dispose()


def test_labels_that_no_database_likes_come_back_as_they_were(store: Store) -> None:
    hostile = Alert({"remediate": "true", "a": "\x00\ud800'; DROP TABLE alerts;--", "\x00": "\n"}, None)
    store.observe([hostile])
    assert pending(store) == [hostile]


def test_the_database_itself_refuses_a_second_restart_of_an_attempt(store: Store, tmp_path: Path) -> None:
    """S1: whatever the code above believes."""
    waiting = Pending(ALERT, "poll", 1.0, None)
    assert store.propose(waiting, incident(1)) is not None
    assert store.propose(waiting, incident(2)) is None
    assert [each.id for each in store.of_run("r")] == ["i1"]
    assert store.propose(waiting, incident(3, action=Action.NONE)) is not None
    engine = open_database(tmp_path)
    with engine.begin() as connection, pytest.raises(IntegrityError):
        connection.execute(incidents.update().where(incidents.c.id == "i3").values(action="restart"))
    engine.dispose()


def test_a_state_is_changed_from_the_one_that_was_read_and_from_no_other(store: Store) -> None:
    store.propose(Pending(ALERT, "poll", 1.0, None), incident())
    store.move(incident(), State.PREPARING, "first")
    with pytest.raises(StaleIncident):
        store.move(incident(), State.PREPARING, "second")
    [(_, events)] = store.with_events("r")
    assert [event.detail for event in events] == ["TrainRunFailed by poll", "restart: why", "first"]


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"state": State.PROPOSED}, 1),
        ({"state": State.IN_DOUBT}, 1),
        ({"state": State.DONE, "committed": 1.0}, 1),
        ({"state": State.FAILED, "committed": 1.0}, 1),
        ({"state": State.ESCALATED, "committed": 1.0}, 1),
        ({"state": State.ESCALATED}, 0),
        ({"state": State.ADOPTED}, 0),
        ({"state": State.ADOPTED, "committed": 1.0}, 0),
        ({"state": State.SUPPRESSED, "action": Action.NONE}, 0),
    ],
)
def test_the_budget_counts_the_restarts_that_we_made_or_are_about_to_make(
    store: Store, changes: dict[str, Any], counted: int
) -> None:
    """S6."""
    store.propose(Pending(ALERT, "poll", 1.0, None), incident(**changes))
    assert used(store, "r").get("crash", 0) == counted
    assert used(store, "another") == {}


@contextmanager
def full_disk(engine: sa.Engine) -> Iterator[None]:
    """Let the database have no more pages than it has."""

    def limit(pages: int) -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE filler (x)")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    limit(pages)
    yield
    limit(1_000_000)


def test_a_full_disk_is_noticed_by_what_cannot_be_stored_until_something_can(tmp_path: Path) -> None:
    """A transaction without a change succeeds on a full disk; and a few bytes fit where a webhook does not."""
    engine = open_database(tmp_path)
    store = Store(engine, FakeClock())
    large = Alert({**ALERT.labels, "text": "x" * 100_000}, 100.0)
    with full_disk(engine):
        store.transactions.check_writable()
        with pytest.raises(OperationalError, match="full"):
            store.receive(Delivery("x", (large,), 0))
        for _ in range(3):
            assert not store.transactions.is_writable
            with pytest.raises(OperationalError, match="full"):
                store.transactions.check_writable()
    store.transactions.check_writable()
    assert store.transactions.is_writable
    store.receive(Delivery("x", (large,), 0))
    assert pending(store) == [large]
    engine.dispose()


def test_where_nothing_is_stored_a_row_is_written_every_few_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = open_database(tmp_path)
    store, beside = Store(engine, clock), open_read_only(tmp_path)

    def written() -> str | None:
        with beside.connect() as connection:
            query = sa.select(about.c.value).where(about.c.key == "alive")
            return connection.execute(query).scalar_one_or_none()

    store.transactions.check_writable()
    assert written() is None
    clock.elapsed += 10
    store.transactions.check_writable()
    first = written()
    assert first is not None
    clock.elapsed += 9
    store.transactions.check_writable()
    assert written() == first
    store.observe([ALERT])
    clock.elapsed += 9
    store.transactions.check_writable()
    assert written() == first, "something else was written"
    clock.elapsed += 1
    store.transactions.check_writable()
    assert written() != first
    for each in (engine, beside):
        each.dispose()


def test_only_one_process_may_hold_a_state_folder(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(StoreError, match="another remediator"):
        Lock(tmp_path)
    lock.release()
    Lock(tmp_path).release()


def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreError, match=FILE):
        open_database(tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"this is no database" * 1000


def test_a_database_of_another_version_is_refused(tmp_path: Path) -> None:
    open_database(tmp_path).dispose()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE about SET value = '99'")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99, of a newer remediator"):
        open_database(tmp_path)
    with pytest.raises(StoreError, match="schema version 99"):
        open_read_only(tmp_path)


def test_a_command_beside_names_what_brings_an_older_database_up_to_date(tmp_path: Path) -> None:
    engine = open_database(tmp_path)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE about SET value = '1' WHERE key = 'schema'"))
    engine.dispose()
    with pytest.raises(StoreError, match=r"version 1, of an older remediator.* Starting the remediator"):
        open_read_only(tmp_path)
    open_database(tmp_path).dispose()
    open_read_only(tmp_path).dispose()


def test_the_log_is_read_without_writing(store: Store, tmp_path: Path) -> None:
    store.propose(Pending(ALERT, "poll", 1.0, None), incident())
    engine = open_read_only(tmp_path)
    with engine.connect() as connection:
        assert connection.execute(sa.select(incidents.c.id)).scalars().all() == ["i1"]
        with pytest.raises(sa.exc.OperationalError, match="readonly"):
            connection.execute(incidents.delete())
    engine.dispose()


def test_a_column_that_came_later_is_added(tmp_path: Path) -> None:
    open_database(tmp_path).dispose()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("ALTER TABLE switches DROP COLUMN until")
    connection.close()
    engine = open_database(tmp_path)
    with engine.begin() as opened:
        assert opened.execute(sa.select(switches.c.until)).all() == []
    engine.dispose()


def test_two_clusters_may_use_one_run_id(store: Store) -> None:
    waiting = Pending(ALERT, "poll", 1.0, None)
    assert store.propose(waiting, incident(1, cluster="a")) is not None
    assert store.propose(waiting, incident(2, cluster="b")) is not None
    assert store.propose(waiting, incident(3, cluster="b")) is None
    assert [each.id for each in store.of_run("r", "a")] == ["i1"]
    assert used(store, "r", "b") == {"crash": 1}
