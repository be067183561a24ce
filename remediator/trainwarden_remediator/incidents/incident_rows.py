"""Incidents as rows of the database, over the connection of a caller: its transaction is theirs."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.database import audit
from trainwarden_remediator.database.schema import events, incidents, switches
from trainwarden_remediator.incidents.history import PastRestart, has_risen
from trainwarden_remediator.incidents.incident import OPEN_STATES, Action, Event, Incident, State, clean

log = logging.getLogger(__name__)

_COLUMNS = [incidents.c[field.name] for field in fields(Incident)]
_MIN_PREFIX = 4
_ACKNOWLEDGED = "acknowledged by "
_SELECT = sa.select(*_COLUMNS).order_by(incidents.c.number)
_OF_ID = _SELECT.where(incidents.c.id == sa.bindparam("id"))
_SET = incidents.update().where(incidents.c.id == sa.bindparam("of"))
_SET_IN_STATE = _SET.where(incidents.c.state == sa.bindparam("was"))
_LAST_DETAIL = (
    sa.select(events.c.detail)
    .where(events.c.incident_id == sa.bindparam("id"))
    .order_by(events.c.number.desc())
    .limit(1)
)
OPEN = [state.value for state in OPEN_STATES]
# An empty cluster is any, and those on record without one count for every cluster that uses the run id.
IN_CLUSTER = sa.or_(incidents.c.cluster.in_(["", sa.bindparam("cluster")]), sa.bindparam("cluster") == "")
OF_RUN = sa.and_(incidents.c.run_id == sa.bindparam("run_id"), IN_CLUSTER)
# Restarts that were made or decided.
RESTARTS = sa.and_(
    incidents.c.action == Action.RESTART.value,
    sa.and_(incidents.c.committed.is_not(None), incidents.c.state != State.ADOPTED.value) | incidents.c.state.in_(OPEN),
)
# Of the table of switches: the name of a storm, and the value of one that goes on.
STORM, ON = "storm", "on"
# Restarts that a storm keeps from being begun, by their ids.
IN_STORM = sa.select(incidents.c.id).where(
    incidents.c.state == State.PROPOSED.value,
    incidents.c.cluster.in_(sa.select(switches.c.scope).where(switches.c.name == STORM, switches.c.value == ON)),
)
_PAST_RESTARTS = _SELECT.where(OF_RUN, RESTARTS, incidents.c.id != sa.bindparam("but"))
# When each open incident was decided, and when its work began, by its log.
_STAGES = (
    sa.select(events.c.incident_id, events.c.state, sa.func.min(events.c.time).label("since"))
    .join(incidents, incidents.c.id == events.c.incident_id)
    .where(incidents.c.state.in_(OPEN), events.c.state.in_(OPEN))
    .group_by(events.c.incident_id, events.c.state)
)
_NEWEST_DECISION = (
    sa.select(incidents.c.id, incidents.c.action, incidents.c.reason, incidents.c.step_before)
    .where(
        OF_RUN,
        incidents.c.attempt.is_not_distinct_from(sa.bindparam("attempt")),
        incidents.c.alert == sa.bindparam("alert"),
    )
    .order_by(incidents.c.number.desc())
    .limit(1)
)


def selection(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return the statement that selects incidents, for `select_incidents`."""
    return _SELECT.where(*where)


def select_incidents(connection: sa.Connection, selected: sa.Select[Any], **values: object) -> list[Incident]:
    """Return the incidents of a `selection`, oldest first."""
    return [_incident(row._asdict()) for row in connection.execute(selected, values)]


def find_incident(connection: sa.Connection, incident_id: str) -> Incident | None:
    """Return one incident; None where there is none of this id."""
    return next(iter(select_incidents(connection, _OF_ID, id=incident_id)), None)


def _incident(row: dict[str, Any]) -> Incident:
    row["state"], row["action"] = State(row["state"]), Action(row["action"])
    return Incident(**row)


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
        for each in select_incidents(connection, _PAST_RESTARTS, run_id=run_id, cluster=cluster, but=but or "")
    ]


def read_log(
    connection: sa.Connection, run_id: str | None = None, limit: int = 1000
) -> list[tuple[Incident, list[Event]]]:
    """Return what `with_events` returns, over any connection."""
    newest = sa.select(incidents.c.number).order_by(incidents.c.number.desc()).limit(limit)
    if run_id is not None:
        newest = newest.where(incidents.c.run_id == run_id)
    found = select_incidents(connection, selection(incidents.c.number.in_(newest)))
    log: dict[str, list[Event]] = {incident.id: [] for incident in found}
    ids = sa.select(incidents.c.id).where(incidents.c.number.in_(newest))
    for row in connection.execute(sa.select(events).where(events.c.incident_id.in_(ids)).order_by(events.c.number)):
        log[row.incident_id].append(Event(row.time, row.state, row.detail))
    return [(incident, log[incident.id]) for incident in found]


def end_page(connection: sa.Connection, incident_id: str, now: float) -> None:
    """Page about an incident no longer."""
    connection.execute(_SET, {"of": incident_id, "paging": False, "updated": now})


def named(connection: sa.Connection, text: str) -> list[Incident]:
    """Return the incidents whose id is this text, or begins with it, oldest first; none for less than 4 letters."""
    if len(text) < _MIN_PREFIX:
        return []
    found = select_incidents(connection, selection(incidents.c.id.startswith(text, autoescape=True)))
    return [each for each in found if each.id == text] or found


def acknowledge(
    connection: sa.Connection, run_id: str | None, by: str, now: float, incident_id: str | None = None
) -> list[Incident]:
    """End the pages of a run, or of one incident, because a person has taken it over; return the incidents."""
    named = incidents.c.id == incident_id if run_id is None else incidents.c.run_id == run_id
    paging = select_incidents(connection, selection(named, incidents.c.paging))
    for incident in paging:
        connection.execute(_SET, {"of": incident.id, "paging": False, "updated": now})
        append_event(connection, incident.id, Event(now, incident.state.value, f"{_ACKNOWLEDGED}{clean(by, 64)}"))
    return paging


def select_acknowledged(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    """Return which of these incidents a person has acknowledged."""
    by_person = events.c.detail.startswith(_ACKNOWLEDGED, autoescape=True)
    return set(connection.scalars(sa.select(events.c.incident_id).where(events.c.incident_id.in_(ids), by_person)))


def insert_incident(connection: sa.Connection, incident: Incident) -> None:
    """Store an incident."""
    connection.execute(incidents.insert(), _row_of(incident))


def update_incident(connection: sa.Connection, was: State, incident: Incident) -> bool:
    """Store an incident anew; return whether it was in this state, else nothing is stored."""
    changed = connection.execute(_SET_IN_STATE, {"of": incident.id, "was": was.value, **_row_of(incident)})
    return changed.rowcount == 1


def _row_of(incident: Incident) -> dict[str, Any]:
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


def stages(connection: sa.Connection) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each open incident was proposed, and when the work on those that are worked on began, Unix time."""
    decided: dict[str, float] = {}
    begun: dict[str, float] = {}
    for row in connection.execute(_STAGES):
        stage = decided if row.state == State.PROPOSED.value else begun
        stage[row.incident_id] = min(row.since, stage.get(row.incident_id, row.since))
    return decided, begun


def last_detail(connection: sa.Connection, incident_id: str) -> str | None:
    """Return the newest entry of the log of an incident."""
    return connection.execute(_LAST_DETAIL, {"id": incident_id}).scalar_one_or_none()


def same_decision(connection: sa.Connection, incident: Incident) -> str | None:
    """Return the id of the newest incident of this alert and attempt, if decision and reason are the same.

    Not where the run has made a step since: then it has failed once more, and what was paged about before is over.
    """
    if incident.action is Action.RESTART:
        return None
    of_alert = {name: getattr(incident, name) for name in ("run_id", "cluster", "attempt", "alert")}
    newest = connection.execute(_NEWEST_DECISION, of_alert).one_or_none()
    if newest is None or (newest.action, newest.reason) != (incident.action.value, incident.reason):
        return None
    return None if has_risen(newest.step_before, incident.step_before) else newest.id
