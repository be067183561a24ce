"""How many lines each user may cause in the exporter's log."""

from __future__ import annotations

# More than trainings cause, at a start with many runs too, and no flood.
LINES = 2000
LINES_PER_SECOND = 1.0


class LineBudget:
    """Bounds the lines of each user: so many at once, and then so many a second.

    Args:
        lines: at once.
        per_second: after these.
    """

    def __init__(self, lines: int = LINES, per_second: float = LINES_PER_SECOND) -> None:
        self._lines, self._per_second = float(lines), per_second
        self._room: dict[int | None, tuple[float, float]] = {}  # of each user: lines, and when that was
        self._refused: set[int | None] = set()

    def take(self, owner: int | None, now: float) -> bool:
        """Return whether there is room for one more line about a user's files at `now`, seconds, and take it."""
        room, since = self._room.get(owner, (self._lines, now))
        room = min(self._lines, room + max(0.0, now - since) * self._per_second)
        if room >= self._lines:
            self._refused.discard(owner)
        taken = room >= 1
        self._room[owner] = (room - taken, now)
        return taken

    def is_first_refusal(self, owner: int | None) -> bool:
        """Return whether a line of this user was refused for the first time since its budget was whole."""
        if owner in self._refused:
            return False
        self._refused.add(owner)
        return True
