"""Restarts that a person must approve or may veto, and the GPU hours that restarts have lost and saved."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from trainwarden_remediator.database.database import reading
from trainwarden_remediator.database.schema import incidents
from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.incidents.price import APPROVED, Approval
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

COUNTDOWN = "veto"
# After how long a person would have restarted a run that hangs, where it is to be said what a restart has saved.
PERSON_SECONDS = 1800.0


class Approvals:
    """Holds a restart back that a person must approve or may veto; the time that has run outlives the process."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def verdict(self, incident: Incident) -> tuple[str, str] | None:
        """Return whether a restart that is ready may begin, and by whom; None while it has to wait for a person."""
        approval = Approval.parse(incident.approval)
        if approval is None:
            return APPROVED, ""
        known = self._store.answer_of(incident.id)
        if known is not None or approval.veto_seconds is None:
            return known
        counted = self._timers.wait(incident.id, COUNTDOWN)
        return (APPROVED, "the end of its countdown") if counted >= approval.veto_seconds else None

    def begin_anew(self, incident: Incident) -> None:
        """Let a countdown begin at its start again: what held the restart back was no time in which to veto it."""
        self._timers.forget(incident.id, COUNTDOWN)


class GpuHours:
    """The metrics of what restarts have lost and saved, by what is on record."""

    def __init__(self, engine: sa.Engine) -> None:
        self._reading = reading(engine)

    def families(self) -> Iterator[Metric]:
        """Return the metrics."""
        made = sa.and_(incidents.c.committed.is_not(None), incidents.c.lost_gpu_hours.is_not(None))
        lost = sa.select(sa.func.coalesce(sa.func.sum(incidents.c.lost_gpu_hours), 0.0)).where(made)
        earlier = PERSON_SECONDS - (incidents.c.committed - incidents.c.created)
        saved = sa.select(sa.func.coalesce(sa.func.sum(incidents.c.held_gpus * earlier / 3600.0), 0.0)).where(
            incidents.c.committed.is_not(None), incidents.c.state == State.DONE.value, earlier > 0
        )
        with self._reading.begin() as connection:
            values = {"lost": connection.execute(lost).scalar_one(), "saved": connection.execute(saved).scalar_one()}
        texts = {
            "lost": "GPU hours of work that restarts have ended and that was done again.",
            "saved": "GPU hours that runs would have gone on hanging until a person came after half an hour.",
        }
        for name, value in values.items():
            yield CounterMetricFamily(f"trainwarden_remediator_gpu_hours_{name}", texts[name], value=float(value))
