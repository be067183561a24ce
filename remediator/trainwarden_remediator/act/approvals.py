"""Restarts that a person must approve or may veto."""

from __future__ import annotations

from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.incidents.price import APPROVED, Approval
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

COUNTDOWN = "veto"


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
        known = self._store.answers.of(incident.id)
        if known is not None or approval.veto_seconds is None:
            return known
        counted = self._timers.wait(incident.id, COUNTDOWN)
        return (APPROVED, "the end of its countdown") if counted >= approval.veto_seconds else None

    def begin_anew(self, incident: Incident) -> None:
        """Let a countdown begin at its start again: what held the restart back was no time in which to veto it."""
        self._timers.forget(incident.id, COUNTDOWN)
