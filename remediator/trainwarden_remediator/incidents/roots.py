"""Which of the alerts of one attempt is the root, and which alerts an incident has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.database.schema import alerts, incident_alerts
from trainwarden_remediator.incidents.incident import Alert, Incident

# A crash explains why the heartbeats or the steps end, and silence why no step is made.
_MODES = ("crash", "timeout", "stall")
# What a rank reports whose peer has failed, and what any failure may end in: mostly the consequence of another one.
CASCADES = frozenset(("nccl", "nccl_timeout", "communication", "distributed_timeout", "exception"))
_MAX_ROWS = 64
_OF_INCIDENT = incident_alerts.c.incident_id == sa.bindparam("incident_id")
_JOINED = sa.select(incident_alerts.c.alert_key).where(
    _OF_INCIDENT, incident_alerts.c.alert_key == sa.bindparam("alert_key")
)
_AWAITED = (sa.select(alerts.c.key).join(incident_alerts, incident_alerts.c.alert_key == alerts.c.key)).where(
    _OF_INCIDENT, alerts.c.pending
)
_COUNT = sa.select(sa.func.count()).select_from(incident_alerts).where(_OF_INCIDENT)


def strength(mode: str | None, error_type: str | None) -> tuple[int, int]:
    """Return how near to the cause a failure is, the nearest first: causes before cascades, before what is unknown."""
    is_known = bool(error_type) and error_type != "unknown"
    kind = int(error_type in CASCADES) if is_known else 2
    return (_MODES.index(mode) if mode in _MODES else len(_MODES)), kind


def order(alert: Alert) -> tuple[int, int, float]:
    """Return what sorts the alerts of one attempt, the root first: the nearest to the cause, of these the earliest."""
    return *strength(alert.mode, alert.label("error_type")), math.inf if alert.starts_at is None else alert.starts_at


def is_better(alert: Alert, incident: Incident) -> bool:
    """Return whether an alert is nearer to the cause than the one that its incident was decided by."""
    return strength(alert.mode, alert.label("error_type")) < strength(incident.failure_mode, incident.error_type)


def roots_before(alert: Alert, firing: Iterable[Alert]) -> list[Alert]:
    """Return the alerts about the same attempt and failure mode that are nearer to the cause, the nearest first."""
    about = (alert.run_id, alert.attempt, alert.mode, alert.cluster)
    same = [each for each in firing if (each.run_id, each.attempt, each.mode, each.cluster) == about]
    return sorted((each for each in same if order(each)[:2] < order(alert)[:2]), key=order)


def join(connection: sa.Connection, incident_id: str, alert: Alert, now: float, *, root: bool) -> bool:
    """Note that an alert belongs to an incident; return whether that is news: the first 64 are."""
    key = {"incident_id": incident_id, "alert_key": alert.key}
    if connection.execute(_JOINED, key).first() is not None:
        return False
    values = {
        "alert": alert.label("alertname") or "",
        "failure_mode": alert.mode or "unknown",
        "node": alert.label("node"),
    }
    row = {**key, **values, "starts_at": alert.starts_at, "joined": now, "root": root}
    connection.execute(incident_alerts.insert(), row)
    return int(connection.execute(_COUNT, {"incident_id": incident_id}).scalar_one()) <= _MAX_ROWS


def is_awaited(connection: sa.Connection, incident_id: str) -> bool:
    """Return whether an alert of an incident still awaits its decision."""
    return connection.execute(_AWAITED, {"incident_id": incident_id}).first() is not None


def alerts_as_json(connection: sa.Connection, incident_id: str) -> list[dict[str, Any]]:
    """Return the alerts of an incident, its root first, then as they joined."""
    rows = connection.execute(
        sa.select(incident_alerts)
        .where(incident_alerts.c.incident_id == incident_id)
        .order_by(incident_alerts.c.root.desc(), incident_alerts.c.joined)
        .limit(_MAX_ROWS)
    )
    names = ("alert", "failure_mode", "node", "starts_at", "joined", "root")
    return [{name: getattr(row, name) for name in names} for row in rows]


def alert_as_text(alert: Mapping[str, Any]) -> str:
    """Return an alert as `alerts_as_json` has it, in short."""
    node = f" on {alert['node']}" if alert["node"] else ""
    return f"{alert['alert']}{node} ({alert['failure_mode']}{', root' if alert['root'] else ''})"
