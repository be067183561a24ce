"""Time, as a port."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """`now` is wall-clock Unix time and may jump; `monotonic` only measures durations inside this process."""

    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never backwards."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some point in the past."""
        return time.monotonic()
