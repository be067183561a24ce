"""The durable state: pending alerts, incidents, events. Each method is one transaction."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from trainwarden_remediator import audit
from trainwarden_remediator.history import PastRestart
from trainwarden_remediator.incident import OPEN_STATES, Action, Alert, Event, Incident, State, clean, restarts_left
from trainwarden_remediator.receive import Delivery
from trainwarden_remediator.schema import (
    about,
    alerts,
    approvals,
    calls,
    deliveries,
    events,
    exclusions,
    incidents,
    timers,
)
from trainwarden_remediator.switches import Switches
from trainwarden_remediator.world import Clock

log = logging.getLogger(__name__)

# Start times of one alert differ: nanoseconds by webhook, milliseconds by poll.
_SAME_START_SECONDS = 1.0
# Keys of what is known about the database, each followed by the id of a run.
_UNRECORDED, _ADOPTED = "restarts unrecorded:", "restarts adopted:"
_REFUSAL_SECONDS = 24 * 3600.0
_RETENTION_SECONDS = 30 * 24 * 3600.0
_COLUMNS = [incidents.c[field.name] for field in fields(Incident)]
_OPEN = [state.value for state in OPEN_STATES]
# Restarts that were made or decided.
_RESTARTS = sa.and_(
    incidents.c.action == Action.RESTART.value,
    sa.and_(incidents.c.committed.is_not(None), incidents.c.state != State.ADOPTED.value)
    | incidents.c.state.in_(_OPEN),
)
# The switch by which a person forbids restarts; its scope is empty, or a run.


@dataclass(frozen=True)
class Pending:
    """An alert that awaits a decision. `received` is when it was accepted, Unix time."""

    alert: Alert
    source: str
    received: float
    waits_for: str | None


@dataclass(frozen=True)
class StoredTimer:
    """How long something had lasted when it was written down, in seconds."""

    subject: str
    kind: str
    elapsed: float
    detail: str


@dataclass(frozen=True)
class Call:
    """One call to a scheduler on behalf of an incident: times in Unix seconds, None where no answer was noted."""

    incident_id: str
    scheduler: str
    job_id: str
    generation: int  # the start of the job that it was about
    verb: str
    started: float
    answered: float | None = None
    outcome: str | None = None
    boot: str = ""  # when the controller was started that was called, in the scheduler's words
    job_started: float | None = None  # when the start of the job began, by the scheduler's clock


Tell = Callable[[sa.Connection, Incident, str], None]


@dataclass(frozen=True)
class Exclusion:
    """Why a job avoids a node, and until when, Unix time; for good where that is None."""

    incident_id: str
    until: float | None


class Store:
    """`crashpoint` is called with a name around every commit; tests make it exit there.

    Attributes:
        tell: called with each new state of an incident and its reason, in the transaction that stores it.
    """

    def __init__(self, engine: sa.Engine, clock: Clock, crashpoint: Callable[[str], None] = lambda _name: None) -> None:
        self._engine = engine
        self._clock = clock
        self._crashpoint = crashpoint
        self.switches = Switches(engine, clock)
        self._file = Path(engine.url.database) if engine.url.database else None
        self.tell: Tell = lambda _connection, _incident, _detail: None
        with engine.begin() as connection:
            query = sa.select(about.c.value).where(about.c.key == "database")
            # A copy that is put back keeps it.
            self.database = connection.execute(query).scalar_one_or_none() or uuid.uuid4().hex
            _set_about(connection, "database", self.database)
        self._identity = self._identify()

    def check_file(self) -> None:
        """Raise SQLAlchemyError if the file was deleted or replaced: what is committed to it would be lost."""
        if self._identify() != self._identity:
            raise SQLAlchemyError(f"{self._file}: the database was deleted or replaced; start the remediator again")

    def _identify(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    @contextmanager
    def _transaction(self, name: str) -> Iterator[sa.Connection]:
        self.check_file()
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
                values: dict[str, Any] = {
                    "key": alert.key,
                    "cluster": alert.cluster,
                    "labels": json.dumps(dict(alert.labels)),
                }
                values |= {"last_seen": now}
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
                if earlier is None:
                    self.tell(connection, incident, incident.reason)
        except IntegrityError:
            # The unique index refused a second restart of the attempt.
            with self._transaction("answer") as connection:
                _answer(connection, pending.alert, None, dropped=False)
            return None
        if earlier is not None:
            return None
        _log(incident, decided.detail)
        return incident

    def move(self, incident: Incident, state: State, detail: str, **changes: Any) -> Incident:
        """Change an incident's state and log the reason; raise StaleIncident if it has changed since it was read."""
        with self._transaction(f"{incident.state.value} to {state.value}") as connection:
            moved, is_news = self._move(connection, incident, state, detail, **changes)
        if is_news:
            _log(moved, detail)
        return moved

    def withdraw(self, incident: Incident, reason: str, *, dropped: bool) -> Incident:
        """Turn a decision to restart into one to do nothing, which allows another decision. See `propose`, `move`."""
        with self._transaction(f"{incident.state.value} to withdrawn") as connection:
            changes = {"action": Action.NONE, "reason": clean(reason, 1000), "paging": False}
            moved, _ = self._move(connection, incident, State.SUPPRESSED, reason, **changes)
            if dropped:
                connection.execute(alerts.update().where(alerts.c.incident_id == incident.id).values(dropped=True))
        _log(moved, f"withdrawn: {reason}")
        return moved

    def _move(
        self, connection: sa.Connection, incident: Incident, state: State, detail: str, **changes: Any
    ) -> tuple[Incident, bool]:
        """Return the changed incident, and whether that is news."""
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
            return moved, False  # logged already: a call that is repeated for hours must not fill the log
        _append(connection, incident.id, Event(now, state.value, detail))
        self.tell(connection, moved, detail)
        return moved, True

    def begin_call(self, call: Call) -> int:
        """Note a call that is about to be made; return its number, for `end_call`."""
        with self._transaction("call") as connection:
            (number,) = connection.execute(calls.insert().values(**asdict(call))).inserted_primary_key or (0,)
            incident = next(iter(select_incidents(connection, incidents.c.id == call.incident_id)), None)
        if incident is not None:
            _log(incident, f"call {number}: {call.verb} of job {call.job_id} by {call.scheduler}", call=int(number))
        return int(number)

    def end_call(self, number: int, outcome: str) -> None:
        """Note the answer of a call."""
        with self._transaction("answered") as connection:
            changes = {"answered": self._clock.now(), "outcome": outcome}
            connection.execute(calls.update().where(calls.c.number == number).values(**changes))
            of_call = sa.select(calls.c.incident_id).where(calls.c.number == number).scalar_subquery()
            incident = next(iter(select_incidents(connection, incidents.c.id == of_call)), None)
        if incident is not None:
            _log(incident, f"call {number} answered: {outcome}", call=number)

    def calls_of_job(self, scheduler: str, job_id: str) -> list[Call]:
        """Return the calls about a job, oldest first."""
        columns = [calls.c[field.name] for field in fields(Call)]
        of_job = sa.select(*columns).where(calls.c.scheduler == scheduler, calls.c.job_id == job_id)
        with self._engine.begin() as connection:
            return [Call(**row) for row in connection.execute(of_job.order_by(calls.c.number)).mappings()]

    def exclude(self, scheduler: str, job_id: str, nodes: Mapping[str, Exclusion]) -> None:
        """Note nodes that a job is to avoid."""
        with self._transaction("exclude") as connection:
            for node, exclusion in nodes.items():
                key = {"scheduler": scheduler, "job_id": job_id, "node": node}
                connection.execute(exclusions.delete().filter_by(**key))
                connection.execute(exclusions.insert().values(**key, **asdict(exclusion)))

    def readmit(self, scheduler: str, job_id: str, nodes: Iterable[str]) -> None:
        """Note that a job need not avoid these nodes any more."""
        gone = exclusions.delete().filter_by(scheduler=scheduler, job_id=job_id)
        with self._transaction("readmit") as connection:
            connection.execute(gone.where(exclusions.c.node.in_(list(nodes))))

    def exclusions(self, scheduler: str) -> dict[str, dict[str, Exclusion]]:
        """Return what jobs avoid because of incidents, by job and node."""
        found: dict[str, dict[str, Exclusion]] = {}
        with self._engine.begin() as connection:
            for row in connection.execute(sa.select(exclusions).where(exclusions.c.scheduler == scheduler)):
                found.setdefault(row.job_id, {})[row.node] = Exclusion(row.incident_id, row.until)
        return found

    def of_job(self, scheduler: str, job_id: str) -> list[Incident]:
        """Return every incident about a job, oldest first."""
        return self._incidents(incidents.c.scheduler == scheduler, incidents.c.job_id == job_id)

    def add(self, incident: Incident) -> None:
        """Store an incident that no alert has led to."""
        with self._transaction("add") as connection:
            self.insert(connection, incident)

    def insert(self, connection: sa.Connection, incident: Incident) -> None:
        """Store an incident that no alert has led to, in a transaction of the caller."""
        detail = f"{incident.action.value}: {incident.reason}"
        connection.execute(incidents.insert().values(**_row(incident)))
        _append(connection, incident.id, Event(incident.updated, incident.state.value, detail))
        self.tell(connection, incident, incident.reason)
        _log(incident, detail)

    def open_incidents(self) -> list[Incident]:
        """Return the open incidents, oldest first."""
        return self._incidents(incidents.c.state.in_(_OPEN))

    def incident(self, incident_id: str) -> Incident:
        """Return one incident as it is now; raise KeyError."""
        for incident in self._incidents(incidents.c.id == incident_id):
            return incident
        raise KeyError(incident_id)

    def escalations(self) -> list[Incident]:
        """Return the incidents that page: until they are acknowledged, or the run is seen to need no person."""
        return self._incidents(incidents.c.paging)

    def recovery_seconds(self) -> list[float]:
        """Return how long each restart that helped took, from its alert on."""
        query = sa.select(incidents.c.updated - incidents.c.created).where(incidents.c.state == State.DONE.value)
        with self._engine.begin() as connection:
            return [max(0.0, row[0]) for row in connection.execute(query)]

    def budgets_left(self) -> dict[tuple[str, str], int]:
        """Return the restarts left by the decisions of the last day, by run and failure mode."""
        since = self._clock.now() - _REFUSAL_SECONDS
        recent = self._incidents(incidents.c.updated >= since, incidents.c.budget_limit.is_not(None))
        return {
            (each.run_id, each.failure_mode): left
            for each in recent
            if (left := restarts_left(each.action, each.budget_used, each.budget_limit)) is not None
        }

    def refusals(self) -> list[Incident]:
        """Return the failures of the last day that a policy has a budget for and does not restart, newest of each run.

        A decision to restart that was withdrawn is none: the run has recovered, or was replaced.
        """
        since = self._clock.now() - _REFUSAL_SECONDS
        recent = incidents.c.updated >= since
        of_runs = sa.select(sa.func.max(incidents.c.number)).where(recent)
        newest = of_runs.group_by(incidents.c.cluster, incidents.c.run_id)
        restarts = sa.select(events.c.incident_id).where(events.c.state == State.PROPOSED.value)
        return self._incidents(
            incidents.c.state == State.SUPPRESSED.value,
            incidents.c.budget_limit.is_not(None),
            recent,
            incidents.c.number.in_(newest),
            incidents.c.id.not_in(restarts),
        )

    def of_run(self, run_id: str, cluster: str = "") -> list[Incident]:
        """Return every incident of a run, oldest first. An empty cluster is any, here and in what follows."""
        return self._incidents(_of_run(run_id, cluster))

    def _incidents(self, *where: sa.ColumnElement[bool]) -> list[Incident]:
        with self._engine.begin() as connection:
            return select_incidents(connection, *where)

    def count_by_state(self) -> dict[str, int]:
        """Return the number of incidents in each state."""
        query = sa.select(incidents.c.state, sa.func.count()).group_by(incidents.c.state)
        with self._engine.begin() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def answer_of(self, incident_id: str) -> tuple[str, str] | None:
        """Return what a person has answered to a restart that waits for it, and who; None while nobody has."""
        query = sa.select(approvals.c.answer, approvals.c.by).where(approvals.c.incident_id == incident_id)
        with self._engine.begin() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else (row.answer, row.by)

    def past_restarts(self, run_id: str, cluster: str = "") -> list[PastRestart]:
        """Return the restarts of a run, made or decided, oldest first."""
        return [
            PastRestart(
                mode=each.failure_mode,
                error_type=each.error_type,
                at=each.updated if each.committed is None else each.committed,
                step=each.step_before,
                checkpoint_step=each.checkpoint_step,
                excluded=each.excluded,
            )
            for each in self._incidents(_of_run(run_id, cluster), _RESTARTS)
        ]

    def restarts_since(self, moment: float, cluster: str = "") -> tuple[float, ...]:
        """Return when restarts of any run were given or decided since a moment."""
        at = sa.func.coalesce(incidents.c.committed, incidents.c.updated)
        of_cluster = incidents.c.cluster.in_(("", cluster)) if cluster else sa.true()
        query = sa.select(at).where(_RESTARTS, at > moment, of_cluster)
        with self._engine.begin() as connection:
            return tuple(row[0] for row in connection.execute(query))

    def proposals_since(self, moment: float) -> list[Incident]:
        """Return the restarts that have not been begun, and those that were decided or given since a moment."""
        lately = sa.func.coalesce(incidents.c.committed, incidents.c.created) > moment
        waits = incidents.c.state == State.PROPOSED.value
        return self._incidents(incidents.c.action == Action.RESTART.value, waits | lately)

    def timers(self) -> list[StoredTimer]:
        """Return the timers as they were last written down."""
        with self._engine.begin() as connection:
            return [StoredTimer(**row) for row in connection.execute(sa.select(timers)).mappings()]

    def keep_timers(self, running: Sequence[StoredTimer]) -> None:
        """Write down the timers that run; all others are over."""
        with self._transaction("timers") as connection:
            connection.execute(timers.delete())
            if running:
                connection.execute(timers.insert(), [asdict(each) for each in running])

    def restarts(self) -> dict[str, int]:
        """Return how often each run was restarted by what is on record, those included that a person has adopted."""
        made = sa.select(incidents.c.run_id, sa.func.count()).where(incidents.c.committed.is_not(None))
        with self._engine.begin() as connection:
            counts = {row[0]: row[1] for row in connection.execute(made.group_by(incidents.c.run_id))}
            for row in connection.execute(sa.select(about).where(about.c.key.startswith(_ADOPTED, autoescape=True))):
                run_id = row.key.removeprefix(_ADOPTED)
                counts[run_id] = max(counts.get(run_id, 0), int(row.value))
        return counts

    def note_unrecorded(self, run_id: str, restarts: int) -> None:
        """Note that the run was restarted more often than is on record, for `adopt`."""
        with self._transaction("unrecorded") as connection:
            _set_about(connection, _UNRECORDED + run_id, str(restarts))

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


def adopt(connection: sa.Connection, run_id: str) -> int | None:
    """Accept that restarts of a run are missing on record; return how many it has had; None where none are missing."""
    key = _UNRECORDED + run_id
    noted = connection.execute(sa.select(about.c.value).where(about.c.key == key)).scalar_one_or_none()
    if noted is None:
        return None
    _set_about(connection, _ADOPTED + run_id, noted)
    connection.execute(about.delete().where(about.c.key == key))
    return int(noted)


def _set_about(connection: sa.Connection, key: str, value: str) -> None:
    connection.execute(about.delete().where(about.c.key == key))
    connection.execute(about.insert().values(key=key, value=value))


def answer_approval(connection: sa.Connection, incident_id: str, answer: str, by: str, now: float) -> str | None:
    """Write down a person's answer to a restart that waits for one; return why it does not count, None if it does."""
    found = select_incidents(connection, incidents.c.id == incident_id)
    if not found:
        return "there is no such incident"
    [incident] = found
    if incident.state is not State.PROPOSED:
        return f"it waits for nobody: it is {incident.state.value}"
    if not incident.approval:
        return "it waits for nobody: freeze holds it back"
    known = connection.execute(sa.select(approvals).where(approvals.c.incident_id == incident_id)).one_or_none()
    if known is not None:
        return None if known.answer == answer else f"it was {known.answer} by {known.by}"
    by = clean(by, 64)
    connection.execute(approvals.insert().values(incident_id=incident_id, answer=answer, by=by, at=now))
    _append(connection, incident_id, Event(now, incident.state.value, f"{answer} by {by}"))
    return None


def acknowledge(
    connection: sa.Connection, run_id: str | None, by: str, now: float, incident_id: str | None = None
) -> list[Incident]:
    """End the pages of a run, or of one incident, because a person has taken it over; return the incidents."""
    named = incidents.c.id == incident_id if run_id is None else incidents.c.run_id == run_id
    paging = select_incidents(connection, named, incidents.c.paging)
    for incident in paging:
        connection.execute(incidents.update().where(incidents.c.id == incident.id).values(paging=False, updated=now))
        _append(connection, incident.id, Event(now, incident.state.value, f"acknowledged by {clean(by, 64)}"))
    return paging


def select_incidents(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Incident]:
    """Return the selected incidents, oldest first."""
    rows = connection.execute(sa.select(*_COLUMNS).where(*where).order_by(incidents.c.number))
    return [
        Incident(**{**row, "state": State(row["state"]), "action": Action(row["action"])}) for row in rows.mappings()
    ]


def _of_run(run_id: str, cluster: str) -> sa.ColumnElement[bool]:
    """Select the incidents of a run. Those on record without a cluster count for every cluster that uses the run id."""
    of_id = incidents.c.run_id == run_id
    return sa.and_(of_id, incidents.c.cluster.in_(("", cluster))) if cluster else of_id


def _row(incident: Incident) -> dict[str, Any]:
    return {**asdict(incident), "state": incident.state.value, "action": incident.action.value}


def _log(incident: Incident, detail: str, **more: object) -> None:
    """Log what was decided, called or answered, once it is durable."""
    about_it: dict[str, object] = {"incident": incident.id, "run_id": incident.run_id, "attempt": incident.attempt}
    about_it |= {"job_id": incident.job_id, "state": incident.state.value, **more}
    log.info("%s", clean(detail, 1000), extra={"fields": about_it})


def _append(connection: sa.Connection, incident_id: str, event: Event) -> None:
    audit.append(connection, incident_id=incident_id, **asdict(event))


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
            _of_run(incident.run_id, incident.cluster),
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
