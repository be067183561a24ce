"""The calls to schedulers on record: each is written down before it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import sqlalchemy as sa

from trainwarden_remediator.database.schema import calls, incidents
from trainwarden_remediator.decide.facts import CALL, Fact, insert_facts
from trainwarden_remediator.incidents.incident_rows import find_incident, log_change, select_incidents, selection
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.transactions import Transactions


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
    boot: str = ""  # of a call that gives a start: when the controller was started, in the scheduler's words
    job_started: float | None = None  # when the start of the job began, by the scheduler's clock


_END = calls.update().where(calls.c.number == sa.bindparam("of"))
_INCIDENT = selection(
    incidents.c.id == sa.select(calls.c.incident_id).where(calls.c.number == sa.bindparam("of")).scalar_subquery()
)
_OF_JOB = (
    sa.select(*(calls.c[field.name] for field in fields(Call)))
    .where(calls.c.scheduler == sa.bindparam("scheduler"), calls.c.job_id == sa.bindparam("job_id"))
    .order_by(calls.c.number)
)


class StoredCalls:
    """The table, for any thread. Each method is one transaction."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def begin(self, call: Call, known: Sequence[Fact] = ()) -> int:
        """Note a call that is about to be made, and the facts that it rests on; return its number, for `end`."""
        with self._transactions.writing("call") as connection:
            (number,) = connection.execute(calls.insert(), asdict(call)).inserted_primary_key or (0,)
            insert_facts(connection, call.incident_id, call.started, known, CALL)
            incident = find_incident(connection, call.incident_id)
        if incident is not None:
            detail = f"call {number}: {call.verb} of job {call.job_id} by {call.scheduler}"
            log_change(incident, detail, call=int(number))
        return int(number)

    def end(self, number: int, outcome: str) -> None:
        """Note the answer of a call."""
        with self._transactions.writing("answered") as connection:
            changes = {"answered": self._clock.now(), "outcome": outcome}
            connection.execute(_END, {"of": number, **changes})
            incident = next(iter(select_incidents(connection, _INCIDENT, of=number)), None)
        if incident is not None:
            log_change(incident, f"call {number} answered: {outcome}", call=number)

    def of_job(self, scheduler: str, job_id: str) -> list[Call]:
        """Return the calls about a job, oldest first."""
        of_job = {"scheduler": scheduler, "job_id": job_id}
        with self._transactions.reading() as connection:
            return [Call(*row) for row in connection.execute(_OF_JOB, of_job)]
