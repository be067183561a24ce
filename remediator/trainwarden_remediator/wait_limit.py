"""Bounds a wait. Kept in memory: a restart of the remediator can only make a wait longer."""

from __future__ import annotations

from trainwarden_remediator.world import Clock


class WaitLimit:
    """Expires `seconds` after the first wait for a subject, by the monotonic clock, whatever the reasons since."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._reasons: dict[str, str] = {}

    def wait(self, subject: str, reason: str) -> None:
        """Record that the subject waits, and why."""
        self._since.setdefault(subject, self._clock.monotonic())
        self._reasons[subject] = reason

    def expired(self, subject: str) -> str | None:
        """Return a message once the subject has waited too long; None before."""
        since = self._since.get(subject)
        if since is None or self._clock.monotonic() - since < self._seconds:
            return None
        return f"nothing could be done for {self._seconds / 60:g} minutes: {self._reasons[subject]}"

    def forget(self, subject: str) -> None:
        """End the wait of a subject."""
        self._since.pop(subject, None)
        self._reasons.pop(subject, None)
