"""Rates from counts."""

from collections import deque
from dataclasses import dataclass

_WINDOW_SECONDS = 30.0


@dataclass(frozen=True)
class Rates:
    """Per second, over the last half minute; None where nothing was counted."""

    tokens: float | None
    samples: float | None


class Throughput:
    """Turns growing sums into rates over the recent past."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float | None, float | None]] = deque()

    def add(self, time: float, tokens: float | None, samples: float | None) -> Rates:
        """Take the sums as they were at `time`, Unix seconds, and return the rates up to then."""
        if self._seen and time <= self._seen[-1][0]:
            # The clock was set back: what was measured against the old one says nothing.
            self._seen.clear()
        self._seen.append((time, tokens, samples))
        while len(self._seen) > 2 and time - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        since, tokens_then, samples_then = self._seen[0]
        return Rates(_rate(tokens_then, tokens, time - since), _rate(samples_then, samples, time - since))


def _rate(then: float | None, now: float | None, seconds: float) -> float | None:
    return None if now is None or seconds <= 0 else (now - (then or 0.0)) / seconds
