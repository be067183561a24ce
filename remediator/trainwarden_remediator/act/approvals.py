"""Restarts that a person must approve or may veto."""

from __future__ import annotations

from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.incidents.price import Approval
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

COUNTDOWN = "veto"


class Approvals:
    """Holds a restart back that a person must approve or may veto; the time that has run outlives the process.

    A veto is an objection as others are: it is looked for before each call that ends an attempt.
    """

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def by(self, incident: Incident) -> str | None:
        """Return by whom a restart that is ready may begin, empty where it needs nobody; None while it has to wait."""
        approval = Approval.parse(incident.approval)
        if approval is None:
            return ""
        if (by := self._store.answers.approved(incident.id)) is not None:
            return by
        if approval.veto_seconds is None:
            return None
        counted = self._timers.wait(incident.id, COUNTDOWN)
        return "the end of its countdown" if counted >= approval.veto_seconds else None

    def begin_anew(self, incident: Incident) -> None:
        """Let a countdown begin at its start again: what held the restart back was no time in which to veto it."""
        self._timers.forget(incident.id, COUNTDOWN)
