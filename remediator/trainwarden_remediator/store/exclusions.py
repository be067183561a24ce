"""The nodes on record that jobs avoid because of incidents: no others are ever taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from trainwarden_remediator.database.schema import exclusions
from trainwarden_remediator.store.transactions import Transactions

_OF_SCHEDULER = sa.select(exclusions).where(exclusions.c.scheduler == sa.bindparam("scheduler"))


@dataclass(frozen=True)
class Exclusion:
    """Why a job avoids a node, and until when, Unix time; for good where that is None."""

    incident_id: str
    until: float | None


class StoredExclusions:
    """The table, for any thread. Each method is one transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def note(self, scheduler: str, job_id: str, nodes: Mapping[str, Exclusion]) -> None:
        """Note nodes that a job is to avoid."""
        with self._transactions.writing("exclude") as connection:
            for node, exclusion in nodes.items():
                key = {"scheduler": scheduler, "job_id": job_id, "node": node}
                connection.execute(exclusions.delete().filter_by(**key))
                connection.execute(exclusions.insert().values(**key, **asdict(exclusion)))

    def forget(self, scheduler: str, job_id: str, nodes: Iterable[str]) -> None:
        """Note that a job need not avoid these nodes any more."""
        gone = exclusions.delete().filter_by(scheduler=scheduler, job_id=job_id)
        with self._transactions.writing("readmit") as connection:
            connection.execute(gone.where(exclusions.c.node.in_(list(nodes))))

    def of_scheduler(self, scheduler: str) -> dict[str, dict[str, Exclusion]]:
        """Return what jobs avoid because of incidents, by job and node."""
        found: dict[str, dict[str, Exclusion]] = {}
        with self._transactions.reading() as connection:
            for row in connection.execute(_OF_SCHEDULER, {"scheduler": scheduler}):
                found.setdefault(row.job_id, {})[row.node] = Exclusion(row.incident_id, row.until)
        return found
