"""How long the named sections of a step take on this rank.

In lock step every rank's step is equally long: only the time before the collective shows which one is slow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

from trainwarden.record.rank import MAX_SECTIONS, is_section

_WINDOW_SECONDS = 60.0


class SectionTimer:
    """Measures the sections of the step that is being made; times of one in which something else was done are dropped.

    One section is measured at a time, so that those of a step add up to no more than the step.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._active: str | None = None
        self._since = 0.0
        self._of_step: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._steps = 0
        self._is_interrupted = False
        # A plain attribute, because every `step()` reads it.
        self.in_use = False

    def enter(self, name: str | None) -> str | None:
        """Begin a section, or none, and return the one that was in progress."""
        self.in_use = True
        before, now = self._active, self._clock()
        self._add(now)
        self._active, self._since = name, now
        return before

    def may_enter(self, name: object) -> bool:
        """Return whether this is the name of a section, and one of the first `MAX_SECTIONS`."""
        if not isinstance(name, str) or not is_section(name):
            return False
        known = {*self._totals, *self._of_step, self._active} - {None}
        return name in known or len(known) < MAX_SECTIONS

    def end_step(self, count: int, moment: float) -> None:
        """Count the sections so far to one step, or to `count` of them; the one in progress goes on in the next."""
        self._add(moment)
        self._since = moment
        if not self._is_interrupted:
            self._steps += count
            for name, seconds in self._of_step.items():
                self._totals[name] = self._totals.get(name, 0.0) + seconds
        self._of_step, self._is_interrupted = {}, False

    def interrupt(self) -> None:
        """Leave out the step that is being made."""
        self._is_interrupted = True

    def totals(self) -> tuple[int, dict[str, float]]:
        """Return the number of steps, and the seconds of each section in all of them."""
        return self._steps, dict(self._totals)

    def _add(self, now: float) -> None:
        if self._active is not None:
            self._of_step[self._active] = self._of_step.get(self._active, 0.0) + now - self._since


class SectionMeans:
    """Computes the mean seconds of a step from growing totals, over the last minute or the last report."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int, Mapping[str, float]]] = deque([(float("-inf"), 0, {})])

    def add(self, moment: float, steps: int, totals: Mapping[str, float]) -> dict[str, float]:
        """Add the totals as they were at `moment`, seconds, and return the means up to then."""
        if steps > self._points[-1][1]:
            self._points.append((moment, steps, totals))
            while len(self._points) > 2 and moment - self._points[0][0] > _WINDOW_SECONDS:
                self._points.popleft()
        (_, first, before), (_, last, after) = self._points[0], self._points[-1]
        if last == first:
            return {}
        return {name: round((seconds - before.get(name, 0.0)) / (last - first), 6) for name, seconds in after.items()}


class SectionScope:
    """Returned by `section()`: at the end of its `with` block the section before goes on."""

    __slots__ = ("_before", "_timer")

    def __init__(self, timer: SectionTimer | None, before: str | None = None) -> None:
        self._timer = timer
        self._before = before

    def __enter__(self) -> SectionScope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.enter(self._before)
