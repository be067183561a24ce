"""Alerts as rows of the database, over the connection of a caller: its transaction is theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.database.schema import alerts, deliveries
from trainwarden_remediator.incidents.incident import Alert
from trainwarden_remediator.incidents.webhook import Delivery

# Start times of one alert differ: nanoseconds by webhook, milliseconds by poll.
_SAME_START_SECONDS = 1.0
# That an alert was seen again is written down so often: a commit at every poll would serve nothing.
_SEEN_SECONDS = 3600.0
_COUNT_DELIVERY = (
    deliveries.update()
    .where(deliveries.c.sha256 == sa.bindparam("of"))
    .values(last_received=sa.bindparam("last_received"), count=deliveries.c.count + 1)
)
_OF_KEY = sa.select(alerts).where(alerts.c.key == sa.bindparam("of"))
_PENDING = sa.select(alerts).where(alerts.c.pending).order_by(alerts.c.received)
_CHANGE = alerts.update().where(alerts.c.key == sa.bindparam("of"))


@dataclass(frozen=True)
class Pending:
    """An alert that awaits a decision. `received` is when it was accepted, Unix time."""

    alert: Alert
    source: str
    received: float
    waits_for: str | None


def keep_delivery(connection: sa.Connection, delivery: Delivery, now: float) -> None:
    """Count a body of a webhook, by what it holds."""
    seen = connection.execute(_COUNT_DELIVERY, {"of": delivery.sha256, "last_received": now})
    if not seen.rowcount:
        times = {"first_received": now, "last_received": now}
        values = {"sha256": delivery.sha256, "count": 1, "truncated": delivery.truncated}
        connection.execute(deliveries.insert(), {**values, **times})


def keep_alerts(connection: sa.Connection, firing: Sequence[Alert], source: str, now: float) -> None:
    """Store firing alerts; one that was decided becomes pending again if it has begun again, or was dropped."""
    for alert in firing:
        row = connection.execute(_OF_KEY, {"of": alert.key}).one_or_none()
        if row is None:
            values: dict[str, Any] = {
                "key": alert.key,
                "cluster": alert.cluster,
                "labels": json.dumps(dict(alert.labels)),
            }
            values |= {"last_seen": now, "pending": True, "dropped": False}
            values |= {"starts_at": alert.starts_at, "source": source, "received": now}
            connection.execute(alerts.insert(), values)
            continue
        changes: dict[str, Any] = {} if 0 <= now - row.last_seen < _SEEN_SECONDS else {"last_seen": now}
        if not row.pending and (row.dropped or _began_again(row.starts_at, alert.starts_at)):
            changes |= {"pending": True, "dropped": False, "received": now, "source": source, "waits_for": None}
            changes |= {"starts_at": alert.starts_at, "last_seen": now}
        if changes:
            change_alert(connection, alert.key, **changes)


def select_pending(connection: sa.Connection) -> list[Pending]:
    """Return the alerts that await a decision, oldest first."""
    return [
        Pending(Alert(json.loads(row.labels), row.starts_at), row.source, row.received, row.waits_for)
        for row in connection.execute(_PENDING)
    ]


def change_alert(connection: sa.Connection, key: str, **changes: object) -> None:
    """Change columns of an alert."""
    connection.execute(_CHANGE, {"of": key, **changes})


def answer_alert(connection: sa.Connection, alert: Alert, incident_id: str | None, *, dropped: bool) -> None:
    """Note that an alert awaits no decision any more; a `dropped` one does again once it fires again."""
    values = {"pending": False, "dropped": dropped, "waits_for": None, "incident_id": incident_id}
    change_alert(connection, alert.key, **values)


def _began_again(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return False
    return abs(now - before) > _SAME_START_SECONDS
