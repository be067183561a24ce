"""How an incident goes on from a step: it moves to another state, or waits."""

from __future__ import annotations

from typing import Any

from trainwarden_remediator.act.calls import Pace
from trainwarden_remediator.act.restart import Restart
from trainwarden_remediator.decide.attempt import lost
from trainwarden_remediator.decide.verdict import Held, Lost, NotNow, Refuse, Wait
from trainwarden_remediator.drivers.driver import Absent, RestartProgress
from trainwarden_remediator.incidents.incident import OPEN_STATES, Incident, State
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.notify.outbox import NOT_RESTARTED
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

# Kinds of timers of an incident.
_WAITS, _HELD = "waits", "held"


class Transitions:
    """Stores what comes of each step. A method that returns a bool returns whether the incident has changed."""

    def __init__(self, store: Store, timers: Timers, metrics: Metrics, pace: Pace) -> None:
        self._store = store
        self._timers = timers
        self._metrics = metrics
        self._pace = pace

    def move(self, incident: Incident, state: State, detail: str, **changes: Any) -> Incident:
        """Change the state; return the incident as it is then."""
        moved = self._store.move(incident, state, detail, **changes)
        if moved.state not in OPEN_STATES:
            self._settled(moved)
        return moved

    def escalate(self, incident: Incident, reason: str) -> bool:
        """Hand the incident over to a person."""
        self.move(incident, State.ESCALATED, reason, reason=reason, paging=True)
        return True

    def leave(self, restart: Restart, seen: RestartProgress) -> bool:
        """End the incident as somebody else has replaced, ended or held the start."""
        job = restart.job
        if seen is RestartProgress.STUCK:
            self.escalate(restart.incident, f"{seen.value}: it does not start until a person releases it")
        elif seen is RestartProgress.GONE and isinstance(job, Absent) and (why := lost(job)) is not None:
            self.escalate(restart.incident, why)
        else:
            self.move(restart.incident, State.ADOPTED, f"{seen.value}, and not by us")
        return True

    def withdraw(self, incident: Incident, verdict: Refuse) -> bool:
        """Take the decision to restart back; hand a run over that is lost since."""
        if isinstance(verdict, Lost):
            return self.escalate(incident, verdict.reason)
        # An alert that is not active now may fire again with the same start time; a refuted one may not.
        self._settled(self._store.withdraw(incident, verdict.reason, dropped=isinstance(verdict, NotNow)))
        return True

    def obey(self, incident: Incident, verdict: Wait | Refuse) -> bool:
        """Do what a check before a call has come to: wait, or take the decision back.

        What people have switched, or a storm, may last: it is noted once, and nobody is paged for its time.
        """
        if isinstance(verdict, Refuse):
            return self.withdraw(incident, verdict)
        if not isinstance(verdict, Held):
            self._timers.forget(incident.id, _HELD)
            return self.wait(incident, verdict.reason)
        if self._timers.detail(incident.id, _HELD) != verdict.reason:
            self._timers.wait(incident.id, _HELD, verdict.reason)
            self._store.move(incident, incident.state, f"waits: {verdict.reason}", kind=NOT_RESTARTED)
        self.go_on(incident)
        return False

    def wait(self, incident: Incident, reason: str) -> bool:
        """Wait; nothing is stored but how long, and for what."""
        self._timers.wait(incident.id, _WAITS, reason)
        return False

    def go_on(self, incident: Incident) -> None:
        """Let the time that counts for the patience begin anew."""
        self._timers.forget(incident.id, _WAITS)

    def waited(self, incident: Incident) -> tuple[float, str]:
        """Return for how many seconds an incident has waited, and for what."""
        return self._timers.elapsed(incident.id, _WAITS) or 0.0, self._timers.detail(incident.id, _WAITS) or ""

    def _settled(self, incident: Incident) -> None:
        self._pace.forget(incident)
        self._timers.forget(incident.id)
        self._metrics.settled(incident)
