"""What people have answered to restarts that waited for them: an approval, or a veto."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from trainwarden_remediator.database.schema import approvals, incidents
from trainwarden_remediator.incidents.incident import Event, State, clean
from trainwarden_remediator.incidents.incident_rows import OF_RUN, append_event, end_page, find_incident
from trainwarden_remediator.incidents.price import APPROVED, CONTRADICTED, VETOED
from trainwarden_remediator.store.transactions import Transactions

_ANSWER = sa.select(approvals.c.answer, approvals.c.by).where(approvals.c.incident_id == sa.bindparam("of"))
_OF_ATTEMPT = (
    sa.select(approvals.c.by, incidents.c.step_before)
    .join(incidents, incidents.c.id == approvals.c.incident_id)
    .where(OF_RUN, incidents.c.attempt_key == sa.bindparam("attempt_key"))
    .order_by(incidents.c.number.desc())
    .limit(1)
)
_APPROVED_AGAINST_FACTS = _OF_ATTEMPT.where(
    incidents.c.approval == CONTRADICTED,
    approvals.c.answer == APPROVED,
    # A run that has made a step since was no run that hangs.
    sa.or_(sa.bindparam("high_water", type_=sa.Float).is_(None), incidents.c.step_before >= sa.bindparam("high_water")),
)
_VETOED = _OF_ATTEMPT.where(approvals.c.answer == VETOED)
# A restart in these states has begun, and has ended nothing before its first call.
_BEGUN = (State.CAPTURING, State.PREPARING)


@dataclass(frozen=True)
class Veto:
    """A veto against the restart of an attempt: by whom, and the highest step of the run then."""

    by: str
    step: float | None


class Answers:
    """Reads the answers on record. An empty cluster is any."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def approved(self, incident_id: str) -> str | None:
        """Return by whom a restart was approved; None where it was not."""
        return self._by(incident_id, APPROVED)

    def vetoed(self, incident_id: str) -> str | None:
        """Return by whom a restart was vetoed; None where it was not."""
        return self._by(incident_id, VETOED)

    def _by(self, incident_id: str, answer: str) -> str | None:
        with self._transactions.reading() as connection:
            row = connection.execute(_ANSWER, {"of": incident_id}).one_or_none()
        return row.by if row is not None and row.answer == answer else None

    def approved_against_facts(
        self, run_id: str, cluster: str, attempt_key: str, high_water: float | None
    ) -> str | None:
        """Return by whom a restart of an attempt was approved although another source says that it works, else None.

        An approval lapses with the next step beyond the highest of then; `high_water` is that of now.
        """
        values = {"run_id": run_id, "cluster": cluster, "attempt_key": attempt_key, "high_water": high_water}
        with self._transactions.reading() as connection:
            row = connection.execute(_APPROVED_AGAINST_FACTS, values).one_or_none()
        return None if row is None else row.by

    def veto(self, run_id: str, cluster: str, attempt_key: str) -> Veto | None:
        """Return the newest veto against the restart of an attempt; None where there is none."""
        values = {"run_id": run_id, "cluster": cluster, "attempt_key": attempt_key}
        with self._transactions.reading() as connection:
            row = connection.execute(_VETOED, values).one_or_none()
        return None if row is None else Veto(row.by, row.step_before)


def answer_approval(connection: sa.Connection, incident_id: str, answer: str, by: str, now: float) -> str | None:
    """Write down a person's answer to a restart that waits for one; return why it does not count, None if it does."""
    incident = find_incident(connection, incident_id)
    if incident is None:
        return "there is no such incident"
    contradicted = incident.state is State.ESCALATED and incident.approval == CONTRADICTED
    if contradicted and answer != APPROVED:
        return "nothing is restarted without an approval; ack ends the page"
    # Each check before the call that ends the attempt reads a veto, so that one counts until that call is decided.
    vetoes_in_time = answer == VETOED and incident.state in _BEGUN and not incident.calls
    if incident.state is not State.PROPOSED and not contradicted and not vetoes_in_time:
        return f"it waits for nobody: it is {incident.state.value}"
    if not incident.approval:
        return "it waits for nobody: freeze holds it back"
    known = connection.execute(sa.select(approvals).where(approvals.c.incident_id == incident_id)).one_or_none()
    if known is not None:
        instead = "; freeze holds it back" if known.answer == APPROVED else ""
        return None if known.answer == answer else f"it was {known.answer} by {known.by}{instead}"
    by = clean(by, 64)
    connection.execute(approvals.insert().values(incident_id=incident_id, answer=answer, by=by, at=now))
    append_event(connection, incident_id, Event(now, incident.state.value, f"{answer} by {by}"))
    if contradicted:
        end_page(connection, incident_id, now)
    return None
