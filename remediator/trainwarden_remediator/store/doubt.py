"""Whether a call to a scheduler may still take effect. Doubt begins with a call; one that was answered ends it."""

from __future__ import annotations

from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.store.timers import Timers

# Kinds of timers of an incident.
_CALLED, _UNANSWERED = "called", "unanswered"


class Doubt:
    """The doubt about the calls of each incident: it lasts `window` seconds, by stored timers."""

    def __init__(self, timers: Timers, window: float) -> None:
        self._timers = timers
        self._window = window

    def begin(self, incident: Incident) -> None:
        """Note a call that is about to be made, or whose answer is unclear."""
        self._timers.restart(incident.id, _CALLED, _UNANSWERED)

    def called(self, incident: Incident) -> None:
        """Note a call whose effect upon another start would do no harm."""
        self._timers.restart(incident.id, _CALLED)

    def answered(self, incident: Incident) -> None:
        """Note a clear answer."""
        self._timers.forget(incident.id, _UNANSWERED)

    def end(self, incident: Incident) -> None:
        """Note that no call was made after all."""
        self._timers.forget(incident.id, _CALLED, _UNANSWERED)

    def unanswered(self, incident: Incident) -> bool:
        """Return whether the last call has no clear answer."""
        return self._timers.elapsed(incident.id, _UNANSWERED) is not None

    def lasts(self, incident: Incident) -> bool:
        """Return whether an earlier call may still take effect; only time and a fresh reading exclude it."""
        return self._timers.wait(incident.id, _CALLED) < self._window

    def may_come_late(self, incident: Incident) -> bool:
        """Return whether a call that was not answered may still take effect, also upon another start of the job."""
        if not self.unanswered(incident) and incident.state is not State.IN_DOUBT:
            return False
        return incident.calls > 0 and self._timers.wait(incident.id, _UNANSWERED) < self._window
