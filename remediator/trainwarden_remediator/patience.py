"""How long something has been waited for. It dies with the process: a restart of ours may only make a wait longer."""

from __future__ import annotations

from trainwarden_remediator.clock import Clock


class Patience:
    """Runs out `seconds` after the first wait for a subject, by the monotonic clock, whatever was waited for since."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._reasons: dict[str, str] = {}

    def wait(self, subject: str, reason: str) -> None:
        """Write down what keeps the subject from going on."""
        self._since.setdefault(subject, self._clock.monotonic())
        self._reasons[subject] = reason

    def run_out(self, subject: str) -> str | None:
        """What the subject has waited for in vain; None while there is time left."""
        since = self._since.get(subject)
        if since is None or self._clock.monotonic() - since < self._seconds:
            return None
        return f"nothing could be done for {self._seconds / 60:g} minutes: {self._reasons[subject]}"

    def forget(self, subject: str) -> None:
        """It goes on, or is over."""
        self._since.pop(subject, None)
        self._reasons.pop(subject, None)
