"""Incidents as rows of the database, over the connection of a caller: its transaction is theirs."""

from __future__ import annotations

import logging
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.database import audit
from trainwarden_remediator.database.schema import approvals, events, incidents
from trainwarden_remediator.incidents.history import PastRestart
from trainwarden_remediator.incidents.incident import OPEN_STATES, Action, Event, Incident, State, clean
from trainwarden_remediator.incidents.price import APPROVED, CONTRADICTED

log = logging.getLogger(__name__)

_COLUMNS = [incidents.c[field.name] for field in fields(Incident)]
_MIN_PREFIX = 4
# Made once: to make it anew takes longer than to carry it out.
_SELECT = sa.select(*_COLUMNS).order_by(incidents.c.number)
OPEN = [state.value for state in OPEN_STATES]
# Restarts that were made or decided.
RESTARTS = sa.and_(
    incidents.c.action == Action.RESTART.value,
    sa.and_(incidents.c.committed.is_not(None), incidents.c.state != State.ADOPTED.value) | incidents.c.state.in_(OPEN),
)


def select_incidents(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Incident]:
    """Return the selected incidents, oldest first."""
    rows = connection.execute(_SELECT.where(*where))
    return [
        Incident(**{**row, "state": State(row["state"]), "action": Action(row["action"])}) for row in rows.mappings()
    ]


def select_past_restarts(
    connection: sa.Connection, run_id: str, cluster: str, but: str | None = None
) -> list[PastRestart]:
    """Return the restarts of a run, made or decided, oldest first, without the incident `but`."""
    return [
        PastRestart(
            mode=each.failure_mode,
            error_type=each.error_type,
            at=each.updated if each.committed is None else each.committed,
            step=each.step_before,
            checkpoint_step=each.checkpoint_step,
            excluded=each.excluded,
        )
        for each in select_incidents(connection, of_run(run_id, cluster), RESTARTS, incidents.c.id != (but or ""))
    ]


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


def answer_approval(connection: sa.Connection, incident_id: str, answer: str, by: str, now: float) -> str | None:
    """Write down a person's answer to a restart that waits for one; return why it does not count, None if it does."""
    found = select_incidents(connection, incidents.c.id == incident_id)
    if not found:
        return "there is no such incident"
    [incident] = found
    contradicted = incident.state is State.ESCALATED and incident.approval == CONTRADICTED
    if contradicted and answer != APPROVED:
        return "nothing is restarted without an approval; ack ends the page"
    if incident.state is not State.PROPOSED and not contradicted:
        return f"it waits for nobody: it is {incident.state.value}"
    if not incident.approval:
        return "it waits for nobody: freeze holds it back"
    known = connection.execute(sa.select(approvals).where(approvals.c.incident_id == incident_id)).one_or_none()
    if known is not None:
        return None if known.answer == answer else f"it was {known.answer} by {known.by}"
    by = clean(by, 64)
    connection.execute(approvals.insert().values(incident_id=incident_id, answer=answer, by=by, at=now))
    append_event(connection, incident_id, Event(now, incident.state.value, f"{answer} by {by}"))
    if contradicted:
        connection.execute(incidents.update().where(incidents.c.id == incident_id).values(paging=False, updated=now))
    return None


def named(connection: sa.Connection, text: str) -> list[Incident]:
    """Return the incidents whose id is this text, or begins with it, oldest first; none for less than 4 letters."""
    if len(text) < _MIN_PREFIX:
        return []
    found = select_incidents(connection, incidents.c.id.startswith(text, autoescape=True))
    return [each for each in found if each.id == text] or found


def acknowledge(
    connection: sa.Connection, run_id: str | None, by: str, now: float, incident_id: str | None = None
) -> list[Incident]:
    """End the pages of a run, or of one incident, because a person has taken it over; return the incidents."""
    named = incidents.c.id == incident_id if run_id is None else incidents.c.run_id == run_id
    paging = select_incidents(connection, named, incidents.c.paging)
    for incident in paging:
        connection.execute(incidents.update().where(incidents.c.id == incident.id).values(paging=False, updated=now))
        append_event(connection, incident.id, Event(now, incident.state.value, f"acknowledged by {clean(by, 64)}"))
    return paging


def of_run(run_id: str, cluster: str) -> sa.ColumnElement[bool]:
    """Select the incidents of a run. Those on record without a cluster count for every cluster that uses the run id."""
    of_id = incidents.c.run_id == run_id
    return sa.and_(of_id, incidents.c.cluster.in_(("", cluster))) if cluster else of_id


def row_of(incident: Incident) -> dict[str, Any]:
    """Return the columns of an incident."""
    return {**asdict(incident), "state": incident.state.value, "action": incident.action.value}


def log_change(incident: Incident, detail: str, **more: object) -> None:
    """Log what was decided, called or answered, once it is durable."""
    about_it: dict[str, object] = {"incident": incident.id, "run_id": incident.run_id, "attempt": incident.attempt}
    about_it |= {"job_id": incident.job_id, "state": incident.state.value, **more}
    log.info("%s", clean(detail, 1000), extra={"fields": about_it})


def append_event(connection: sa.Connection, incident_id: str, event: Event) -> None:
    """Append to the log of an incident."""
    audit.append(connection, incident_id=incident_id, **asdict(event))


def last_detail(connection: sa.Connection, incident_id: str) -> str | None:
    """Return the newest entry of the log of an incident."""
    query = sa.select(events.c.detail).where(events.c.incident_id == incident_id).order_by(events.c.number.desc())
    return connection.execute(query.limit(1)).scalar_one_or_none()


def same_decision(connection: sa.Connection, incident: Incident) -> str | None:
    """Return the id of the newest incident of this alert and attempt, if decision and reason are the same."""
    if incident.action is Action.RESTART:
        return None
    query = (
        sa.select(incidents.c.id, incidents.c.action, incidents.c.reason)
        .where(
            of_run(incident.run_id, incident.cluster),
            incidents.c.attempt.is_not_distinct_from(incident.attempt),
            incidents.c.alert == incident.alert,
        )
        .order_by(incidents.c.number.desc())
        .limit(1)
    )
    newest = connection.execute(query).one_or_none()
    same = newest is not None and (newest.action, newest.reason) == (incident.action.value, incident.reason)
    return newest.id if newest is not None and same else None
