"""Restarts that the database lacks after it was put back from a backup, and what a person has accepted of that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from trainwarden_remediator.database.database import set_about
from trainwarden_remediator.database.schema import about, incidents
from trainwarden_remediator.store.transactions import Transactions

# Keys of what is known about the database, each followed by the id of a run.
_UNRECORDED, _MISSING = "restarts unrecorded:", "restarts missing:"
# By an older remediator: how often the run was restarted by then, those on record included.
_ADOPTED = "restarts adopted:"
_RESTARTS = (
    sa.select(incidents.c.run_id, sa.func.count())
    .where(incidents.c.committed.is_not(None))
    .group_by(incidents.c.run_id)
)
_ACCEPTED = sa.select(about.c.key, about.c.value).where(
    sa.or_(*(about.c.key.startswith(each, autoescape=True) for each in (_MISSING, _ADOPTED)))
)
_VALUE = sa.select(about.c.value).where(about.c.key == sa.bindparam("of"))


@dataclass(frozen=True)
class _Noted:
    """Restarts of a run, and the incident that is not on record and by which its job was restarted last, if any."""

    restarts: int
    incident: str | None

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> _Noted:
        found = json.loads(text)
        return cls(**found) if isinstance(found, dict) else cls(int(found), None)  # a number of an older remediator


class Adoptions:
    """How often runs were restarted by what is on record, and what of that a person has accepted as missing."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def restarts(self) -> dict[str, int]:
        """Return how often each run was restarted by what is on record, with what a person has accepted as missing."""
        with self._transactions.reading() as connection:
            return _count(connection)

    def adopted(self, run_id: str) -> str | None:
        """Return the incident that is not on record and that a person has accepted as missing; None without one."""
        with self._transactions.reading() as connection:
            found = _read(connection, _MISSING + run_id)
        return found.incident if found else None

    def note(self, run_id: str, restarts: int, incident: str | None) -> None:
        """Note for `adopt` that the run was restarted more often than is on record, last by an incident that is not."""
        with self._transactions.writing("unrecorded") as connection:
            set_about(connection, _UNRECORDED + run_id, _Noted(restarts, incident).as_text())


def adopt(connection: sa.Connection, run_id: str) -> int | None:
    """Accept that restarts of a run are missing on record; return how many it has had; None where none are missing.

    What is accepted is the number that is missing: what comes to be on record later, and is lost, is missing again.
    """
    noted = _read(connection, _UNRECORDED + run_id)
    if noted is None:
        return None
    recorded = {row[0]: row[1] for row in connection.execute(_RESTARTS)}.get(run_id, 0)
    missing = _Noted(max(0, noted.restarts - recorded), noted.incident)
    set_about(connection, _MISSING + run_id, missing.as_text())
    connection.execute(about.delete().where(about.c.key.in_((_UNRECORDED + run_id, _ADOPTED + run_id))))
    return noted.restarts


def _read(connection: sa.Connection, key: str) -> _Noted | None:
    text = connection.execute(_VALUE, {"of": key}).scalar_one_or_none()
    return None if text is None else _Noted.from_text(text)


def _count(connection: sa.Connection) -> dict[str, int]:
    counts = {row[0]: row[1] for row in connection.execute(_RESTARTS)}
    for key, text in connection.execute(_ACCEPTED):
        run_id, known = key.removeprefix(_MISSING).removeprefix(_ADOPTED), _Noted.from_text(text).restarts
        recorded = counts.get(run_id, 0)
        counts[run_id] = recorded + known if key.startswith(_MISSING) else max(recorded, known)
    return counts
