"""One more look at the world right before an attempt is ended: an intent may be old, and its run may have recovered."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_remediator.decide import Refuse, Wait
from trainwarden_remediator.evidence import Run
from trainwarden_remediator.examine import INACTIVE, Objections
from trainwarden_remediator.incident import Alert, Incident
from trainwarden_remediator.unknown import Unknown
from trainwarden_remediator.world import World


class Recheck:
    """Asks Alertmanager, Prometheus and the scheduler anew; nothing that a tick has read before counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._objections = Objections(world)

    def against(self, incident: Incident) -> Wait | Refuse | None:
        """What speaks now against ending the attempt that the incident is about."""
        firing = self._world.alerts.firing()
        if isinstance(firing, Unknown):
            return Wait(firing.reason)
        alert = _alert_of(incident, firing)
        if alert is None:
            return Refuse(INACTIVE)
        run, verdict = self._objections.against(alert)
        if verdict is not None or run is None:
            return verdict
        if run.attempt_key != incident.attempt_key:
            return Refuse(f"stale: the run is at {run.attempt_key}")
        return _recovered(incident, run)


def _alert_of(incident: Incident, firing: Sequence[Alert]) -> Alert | None:
    """The alert that the decision was about; a stronger one that took its place needs a decision of its own."""
    for alert in firing:
        about = (alert.run_id, alert.attempt, alert.label("alertname") or "")
        if about == (incident.run_id, incident.attempt, incident.alert):
            return alert
    return None


def _recovered(incident: Incident, run: Run) -> Refuse | None:
    """A step beyond the one of the decision disproves a stall. A crash is disproved by the run's state alone."""
    if incident.failure_mode == "crash" or run.high_water is None or incident.step_before is None:
        return None
    if run.high_water <= incident.step_before:
        return None
    return Refuse(f"the run goes on by itself: step {run.high_water:g} after {incident.step_before:g}")
