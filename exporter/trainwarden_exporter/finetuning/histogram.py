"""A histogram of a few observations."""

from __future__ import annotations

import bisect
import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
# A smoke test to a month.
DURATION_SECONDS = (
    _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR,
    _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY,
)  # fmt: skip
# An adapter of a few megabytes to the whole state of a large model.
SIZE_BYTES = (1e6, 1e7, 5e7, 1e8, 5e8, 1e9, 5e9, 1e10, 5e10, 1e11, 5e11, 1e12)


class Histogram:
    """Counts observations by their upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self.total = 0.0

    def observe(self, value: float | None) -> None:
        """Count one; what is negative, not finite or unknown is left out."""
        if value is not None and math.isfinite(value) and value >= 0:
            self._counts[bisect.bisect_left(self._bounds, value)] += 1
            self.total += value

    @property
    def buckets(self) -> list[tuple[float, int]]:
        """Each upper bound and the observations up to it; the last is infinite."""
        return list(zip(self._bounds, itertools.accumulate(self._counts), strict=True))
