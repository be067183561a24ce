"""Restarts that the database lacks after it was put back from a backup, and what a person has accepted of that."""

from __future__ import annotations

import sqlalchemy as sa

from trainwarden_remediator.database.schema import about, incidents

# Keys of what is known about the database, each followed by the id of a run.
_UNRECORDED, _ADOPTED = "restarts unrecorded:", "restarts adopted:"
_RESTARTS = (
    sa.select(incidents.c.run_id, sa.func.count())
    .where(incidents.c.committed.is_not(None))
    .group_by(incidents.c.run_id)
)
_ADOPTIONS = sa.select(about).where(about.c.key.startswith(_ADOPTED, autoescape=True))
_DELETE = about.delete().where(about.c.key == sa.bindparam("of"))


def count_restarts(connection: sa.Connection) -> dict[str, int]:
    """Return how often each run was restarted by what is on record, those included that a person has adopted."""
    counts = {row[0]: row[1] for row in connection.execute(_RESTARTS)}
    for row in connection.execute(_ADOPTIONS):
        run_id = row.key.removeprefix(_ADOPTED)
        counts[run_id] = max(counts.get(run_id, 0), int(row.value))
    return counts


def note_unrecorded(connection: sa.Connection, run_id: str, restarts: int) -> None:
    """Note that the run was restarted more often than is on record, for `adopt`."""
    set_about(connection, _UNRECORDED + run_id, str(restarts))


def adopt(connection: sa.Connection, run_id: str) -> int | None:
    """Accept that restarts of a run are missing on record; return how many it has had; None where none are missing."""
    key = _UNRECORDED + run_id
    noted = connection.execute(sa.select(about.c.value).where(about.c.key == key)).scalar_one_or_none()
    if noted is None:
        return None
    set_about(connection, _ADOPTED + run_id, noted)
    connection.execute(_DELETE, {"of": key})
    return int(noted)


def set_about(connection: sa.Connection, key: str, value: str) -> None:
    """Note something about the database itself, in place of what was noted under this key."""
    connection.execute(_DELETE, {"of": key})
    connection.execute(about.insert(), {"key": key, "value": value})
