"""The durable state: pending alerts, incidents, events. Each method is one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from trainwarden_remediator.incident import OPEN_STATES, Action, Alert, Event, Incident, State, clean
from trainwarden_remediator.receive import Delivery
from trainwarden_remediator.schema import alerts, deliveries, events, incidents
from trainwarden_remediator.world import Clock

# Start times of one alert differ: nanoseconds by webhook, milliseconds by poll.
_SAME_START_SECONDS = 1.0
_ESCALATION_SECONDS = 24 * 3600.0
_RETENTION_SECONDS = 30 * 24 * 3600.0
_COLUMNS = [incidents.c[field.name] for field in fields(Incident)]
_OPEN = [state.value for state in OPEN_STATES]


@dataclass(frozen=True)
class Pending:
    """An alert that awaits a decision. `received` is when it was accepted, Unix time."""

    alert: Alert
    source: str
    received: float
    waits_for: str | None


class Store:
    """`crashpoint` is called with a name around every commit; tests make it exit there."""

    def __init__(self, engine: sa.Engine, clock: Clock, crashpoint: Callable[[str], None] = lambda _name: None) -> None:
        self._engine = engine
        self._clock = clock
        self._crashpoint = crashpoint

    @contextmanager
    def _transaction(self, name: str) -> Iterator[sa.Connection]:
        self._crashpoint(f"{name}: before")
        with self._engine.begin() as connection:
            yield connection
            self._crashpoint(f"{name}: before commit")
        self._crashpoint(f"{name}: after commit")

    def receive(self, delivery: Delivery) -> None:
        """Store the alerts of a webhook; durable when it returns."""
        now = self._clock.now()
        with self._transaction("receive") as connection:
            seen = connection.execute(
                deliveries.update()
                .where(deliveries.c.sha256 == delivery.sha256)
                .values(last_received=now, count=deliveries.c.count + 1)
            )
            if not seen.rowcount:
                connection.execute(
                    deliveries.insert().values(
                        sha256=delivery.sha256,
                        first_received=now,
                        last_received=now,
                        count=1,
                        truncated=delivery.truncated,
                    )
                )
            self._keep(connection, delivery.firing, "webhook", now)

    def observe(self, firing: Sequence[Alert]) -> None:
        """Store the alerts of a poll."""
        if firing:
            with self._transaction("observe") as connection:
                self._keep(connection, firing, "poll", self._clock.now())

    def _keep(self, connection: sa.Connection, firing: Sequence[Alert], source: str, now: float) -> None:
        for alert in firing:
            row = connection.execute(sa.select(alerts).where(alerts.c.key == alert.key)).one_or_none()
            if row is None:
                values = {"key": alert.key, "labels": json.dumps(dict(alert.labels)), "last_seen": now}
                values |= {"starts_at": alert.starts_at, "source": source, "received": now}
                connection.execute(alerts.insert().values(**values, pending=True, dropped=False))
                continue
            changes: dict[str, Any] = {"last_seen": now}
            if not row.pending and (row.dropped or _began_again(row.starts_at, alert.starts_at)):
                changes |= {"pending": True, "dropped": False, "received": now, "source": source, "waits_for": None}
                changes |= {"starts_at": alert.starts_at}
            connection.execute(alerts.update().where(alerts.c.key == alert.key).values(**changes))

    def prune(self) -> None:
        """Delete deliveries and decided alerts that were last seen 30 days ago. Incidents stay."""
        before = self._clock.now() - _RETENTION_SECONDS
        with self._transaction("prune") as connection:
            connection.execute(deliveries.delete().where(deliveries.c.last_received < before))
            connection.execute(alerts.delete().where(alerts.c.last_seen < before, ~alerts.c.pending))

    def pending(self) -> list[Pending]:
        """Return the alerts that await a decision, oldest first."""
        with self._engine.begin() as connection:
            rows = connection.execute(sa.select(alerts).where(alerts.c.pending).order_by(alerts.c.received)).all()
        return [
            Pending(Alert(json.loads(row.labels), row.starts_at), row.source, row.received, row.waits_for)
            for row in rows
        ]

    def wait(self, alert: Alert, reason: str) -> None:
        """Record what an alert waits for."""
        with self._transaction("wait") as connection:
            connection.execute(alerts.update().where(alerts.c.key == alert.key).values(waits_for=clean(reason)))

    def propose(
        self, pending: Pending, incident: Incident, *, dropped: bool = False, answered: bool = True
    ) -> Incident | None:
        """Store the incident decided for an alert; None if the same decision is on record, which settles the alert too.

        A `dropped` alert becomes pending again when it fires again; one that is not `answered` stays pending.
        """
        received = Event(pending.received, "RECEIVED", f"{incident.alert} by {pending.source}")
        decided = Event(incident.updated, incident.state.value, f"{incident.action.value}: {incident.reason}")
        try:
            with self._transaction("propose") as connection:
                earlier = _same_decision(connection, incident)
                if earlier is None:
                    connection.execute(incidents.insert().values(**_row(incident)))
                    _append(connection, incident.id, received)
                    _append(connection, incident.id, decided)
                if answered:
                    _answer(connection, pending.alert, earlier or incident.id, dropped=dropped)
        except IntegrityError:
            # The unique index refused a second restart of the attempt.
            with self._transaction("answer") as connection:
                _answer(connection, pending.alert, None, dropped=False)
            return None
        return incident if earlier is None else None

    def move(self, incident: Incident, state: State, detail: str, **changes: Any) -> Incident:
        """Change an incident's state and log the reason; raise StaleIncident if it has changed since it was read."""
        with self._transaction(f"{incident.state.value} to {state.value}") as connection:
            return self._move(connection, incident, state, detail, **changes)

    def withdraw(self, incident: Incident, reason: str, *, dropped: bool) -> Incident:
        """Turn a decision to restart into one to do nothing, which allows another decision. See `propose`, `move`."""
        with self._transaction(f"{incident.state.value} to withdrawn") as connection:
            changes = {"action": Action.NONE, "reason": clean(reason, 1000)}
            moved = self._move(connection, incident, State.SUPPRESSED, reason, **changes)
            if dropped:
                connection.execute(alerts.update().where(alerts.c.incident_id == incident.id).values(dropped=True))
        return moved

    def _move(
        self, connection: sa.Connection, incident: Incident, state: State, detail: str, **changes: Any
    ) -> Incident:
        now, detail = self._clock.now(), clean(detail, 1000)
        moved = replace(incident, state=state, updated=now, **changes)
        done = connection.execute(
            incidents.update()
            .where(incidents.c.id == incident.id, incidents.c.state == incident.state.value)
            .values(**_row(moved))
        )
        if done.rowcount != 1:
            raise StaleIncident(incident.id)
        if replace(moved, updated=incident.updated) == incident and _last_detail(connection, incident.id) == detail:
            return moved  # logged already: a call that is repeated for hours must not fill the log
        _append(connection, incident.id, Event(now, state.value, detail))
        return moved

    def open_incidents(self) -> list[Incident]:
        """Return the open incidents, oldest first."""
        return self._incidents(incidents.c.state.in_(_OPEN))

    def incident(self, incident_id: str) -> Incident:
        """Return one incident as it is now; raise KeyError."""
        for incident in self._incidents(incidents.c.id == incident_id):
            return incident
        raise KeyError(incident_id)

    def escalations(self) -> list[Incident]:
        """Return the incidents that page now."""
        since = self._clock.now() - _ESCALATION_SECONDS
        return self._incidents(incidents.c.paging, incidents.c.updated >= since)

    def of_run(self, run_id: str) -> list[Incident]:
        """Return every incident of a run, oldest first."""
        return self._incidents(incidents.c.run_id == run_id)

    def _incidents(self, *where: sa.ColumnElement[bool]) -> list[Incident]:
        with self._engine.begin() as connection:
            return select_incidents(connection, *where)

    def count_by_state(self) -> dict[str, int]:
        """Return the number of incidents in each state."""
        query = sa.select(incidents.c.state, sa.func.count()).group_by(incidents.c.state)
        with self._engine.begin() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def used(self, run_id: str) -> dict[str, int]:
        """Return the restarts of a run, made or decided, per failure mode."""
        restarts = incidents.c.action == Action.RESTART.value
        made = sa.and_(incidents.c.committed.is_not(None), incidents.c.state != State.ADOPTED.value)
        query = (
            sa.select(incidents.c.failure_mode, sa.func.count())
            .where(incidents.c.run_id == run_id, restarts, made | incidents.c.state.in_(_OPEN))
            .group_by(incidents.c.failure_mode)
        )
        with self._engine.begin() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def with_events(self, run_id: str | None = None, limit: int = 1000) -> list[tuple[Incident, list[Event]]]:
        """Return the newest `limit` incidents, of one run or of all, oldest first, with their events."""
        with self._engine.begin() as connection:
            return read_log(connection, run_id, limit)


class StaleIncident(Exception):
    """The row was changed since it was read."""


def read_log(
    connection: sa.Connection, run_id: str | None = None, limit: int = 1000
) -> list[tuple[Incident, list[Event]]]:
    """Return what `with_events` returns, over any connection."""
    newest = sa.select(incidents.c.number).order_by(incidents.c.number.desc()).limit(limit)
    if run_id is not None:
        newest = newest.where(incidents.c.run_id == run_id)
    found = select_incidents(connection, incidents.c.number.in_(newest))
    log: dict[str, list[Event]] = {incident.id: [] for incident in found}
    ids = sa.select(incidents.c.id).where(incidents.c.number.in_(newest))
    for row in connection.execute(sa.select(events).where(events.c.incident_id.in_(ids)).order_by(events.c.number)):
        log[row.incident_id].append(Event(row.time, row.state, row.detail))
    return [(incident, log[incident.id]) for incident in found]


def select_incidents(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Incident]:
    """Return the selected incidents, oldest first."""
    rows = connection.execute(sa.select(*_COLUMNS).where(*where).order_by(incidents.c.number))
    return [
        Incident(**{**row, "state": State(row["state"]), "action": Action(row["action"])}) for row in rows.mappings()
    ]


def _row(incident: Incident) -> dict[str, Any]:
    return {**asdict(incident), "state": incident.state.value, "action": incident.action.value}


def _append(connection: sa.Connection, incident_id: str, event: Event) -> None:
    connection.execute(events.insert().values(incident_id=incident_id, **asdict(event)))


def _last_detail(connection: sa.Connection, incident_id: str) -> str | None:
    query = sa.select(events.c.detail).where(events.c.incident_id == incident_id).order_by(events.c.number.desc())
    return connection.execute(query.limit(1)).scalar_one_or_none()


def _answer(connection: sa.Connection, alert: Alert, incident_id: str | None, *, dropped: bool) -> None:
    values = {"pending": False, "dropped": dropped, "waits_for": None, "incident_id": incident_id}
    connection.execute(alerts.update().where(alerts.c.key == alert.key).values(**values))


def _same_decision(connection: sa.Connection, incident: Incident) -> str | None:
    """Return the id of the newest incident of this alert and attempt, if decision and reason are the same."""
    if incident.action is Action.RESTART:
        return None
    query = (
        sa.select(incidents.c.id, incidents.c.action, incidents.c.reason)
        .where(
            incidents.c.run_id == incident.run_id,
            incidents.c.attempt.is_not_distinct_from(incident.attempt),
            incidents.c.alert == incident.alert,
        )
        .order_by(incidents.c.number.desc())
        .limit(1)
    )
    newest = connection.execute(query).one_or_none()
    same = newest is not None and (newest.action, newest.reason) == (incident.action.value, incident.reason)
    return newest.id if newest is not None and same else None


def _began_again(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return False
    return abs(now - before) > _SAME_START_SECONDS
