"""How long the steps of a training take: the last ones, without those in which it did something else."""

from __future__ import annotations

from collections import deque

from trainwarden.record.schema import INTEGER, NUMBER, RecordDocument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_STEPS = 512


class StepDurations(RecordDocument):
    """Seconds of one step: median, 99th percentile and longest of the last `count` steps."""

    count: int | None = INTEGER
    p50: float | None = NUMBER
    p99: float | None = NUMBER
    max: float | None = NUMBER

    @classmethod
    def of(cls, seconds: Sequence[float]) -> StepDurations | None:
        """Return what these durations amount to; None without any."""
        if not seconds:
            return None
        ordered = sorted(seconds)
        count = len(ordered)
        # The smallest one that so many percent do not exceed.
        return cls(
            count=count, p50=ordered[(count + 1) // 2 - 1], p99=ordered[(99 * count + 99) // 100 - 1], max=ordered[-1]
        )


class StepTimer:
    """Measures the time between two reports of a loop, by the monotonic clock."""

    __slots__ = ("_last", "_moment", "_seconds")

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._moment: float | None = None
        self._last = 0

    def report(self, step: int, moment: float) -> None:
        """Take note of a report of `step`. One of several steps stands for as many equal ones; it counts once."""
        before, passed = self._moment, step - self._last
        if before is not None and passed > 0:
            self._seconds.append((moment - before) / passed)
        if passed or before is None:
            self._moment, self._last = moment, step

    def interrupt(self) -> None:
        """Leave out the step that is being made: the training does something else in it."""
        self._moment = None

    @property
    def seconds(self) -> tuple[float, ...]:
        """The durations of the last steps."""
        return tuple(self._seconds)
