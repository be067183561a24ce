"""What a command prints about its steps, and the phase and the budget that follow from it.

For a command that reports nothing itself. Such a phase is inferred: a long evaluation prints no step either. So nothing
is restarted for it, unless its budget was given explicitly.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from trainwarden.record.metadata import VERSION
from trainwarden.record.progress import Progress
from trainwarden.record.steps import StepCounter, is_nonfinite
from trainwarden.record.thresholds import Thresholds

if TYPE_CHECKING:
    from trainwarden.signals.progress import LogProgress, ProgressReader

# Of output that was not read yet; of more, the end counts.
PENDING_BYTES = 1024 * 1024
# Of output before the first step, so much is read line by line.
_FIRST_BYTES = 64 * 1024
# A budget that was not given is at least so many times the longest interval between two printed steps.
_INTERVALS = 3.0
_BEFORE_STEPS = ("init", "load")
_VALUES = ("total_steps", "learning_rate", "epoch", "tokens_per_second", "samples_per_second")


class PrintedProgress:
    """The steps in the output of one attempt.

    `add` may be called by another thread than the rest, and costs it a copy of the data.

    Args:
        now: the clock, Unix seconds.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._added: float | None = None
        self._stopped = False
        self._last: tuple[int | None, int | None] = (None, None)
        self._reader: ProgressReader | None = None
        self._progress: LogProgress | None = None
        self._counter = StepCounter()
        self._begun = now()
        self._longest = 0.0
        self.first_output: float | None = None

    def begin(self, before: Progress | None) -> None:
        """Start the attempt now; `before` is what its run has recorded."""
        self._begun = self._now()
        self._counter = StepCounter.of_run(before)

    def go_on(self, progress: Progress | None, budget: float, first_step: int | None) -> None:
        """Continue an attempt that another process has followed so far.

        Args:
            progress: of the attempt, as that recorded it; None before its first step.
            budget: of steps, as that recorded it, in seconds.
            first_step: of the attempt.
        """
        if progress is not None and progress.step is not None:
            self._counter = StepCounter.of_attempt(progress)
            self._counter.attempt_high = max(self._counter.attempt_high, progress.step)
            self._counter.first_step = progress.step if first_step is None else first_step
        self._longest = budget / _INTERVALS

    def add(self, data: bytes) -> None:
        """Add some output."""
        with self._lock:
            if self._stopped:
                return
            self._pending += data
            self._added = self._now()
            if self.first_output is None:
                self.first_output = self._added
            if len(self._pending) > 2 * PENDING_BYTES:
                del self._pending[:-PENDING_BYTES]
                # What is cut is no record, nor the end of the one before.
                self._pending[: self._pending.find(b"\n") + 1] = b"\n"

    def stop(self) -> None:
        """Read no more: the training reports its steps itself."""
        with self._lock:
            self._stopped = True
            self._pending.clear()

    def read(self, *, over: bool = False) -> bool:
        """Read what was added; returns whether there is another step than before.

        Args:
            over: there will be no more output: the last line counts without a line end.
        """
        with self._lock:
            data, added = bytes(self._pending), self._added
            self._pending.clear()
        if over and not self._stopped:
            data += b"\n"
        if not data or added is None:
            return False
        moved = False
        for part in self._parts(data):
            progress = self._read(part)
            seen = (progress.step, progress.high_water)
            self._progress = progress
            if progress.step is not None and progress.step >= 0 and seen != self._last:
                self._last = seen
                self._count(progress, progress.step, added)
                moved = True
        return moved

    @property
    def first_step(self) -> int | None:
        """The first step that was printed; None before one."""
        return self._counter.first_step

    @property
    def last_output(self) -> float | None:
        """When something was last printed, Unix seconds; None before that."""
        return self._added

    @property
    def is_at_end(self) -> bool:
        """Whether the last step was printed, or the last one of an epoch: an evaluation or a checkpoint follows."""
        found = self._progress
        return found is not None and found.step is not None and found.step == found.total_steps

    def progress(self, key: str, attempt: int | None) -> Progress:
        """Return `progress.json` after the last step that was printed."""
        found, counter = self._progress, self._counter
        values = {name: getattr(found, name) for name in _VALUES}
        values |= {name: _finite(getattr(found, name)) for name in ("loss", "grad_norm")}
        given = {name: value for name, value in values.items() if value is not None}
        return Progress(
            version=VERSION,
            attempt=attempt,
            attempt_key=key,
            last_updated=counter.moved_time,
            **counter.as_fields(),
            **given,
        )

    def train_budget(self, default: float) -> float:
        """Return a stall budget that fits the intervals of the printed steps, in whole minutes above the default."""
        wanted = _INTERVALS * self._longest
        return default if wanted <= default else 60.0 * math.ceil(wanted / 60.0)

    def _parts(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines up to the first step, then the rest, of which the last step alone is read."""
        start = 0
        while self._last[0] is None and start < min(len(data), _FIRST_BYTES):
            end = data.find(b"\n", start) + 1 or len(data)
            yield data[start:end]
            start = end
        if start < len(data):
            yield data[start:]

    def _read(self, data: bytes) -> LogProgress:
        if self._reader is None:
            # Loaded by a command that prints something: `true` and a training with the library need none of it.
            from trainwarden.signals.progress import ProgressReader  # noqa: PLC0415

            self._reader = ProgressReader()
        self._reader.feed(data)
        return self._reader.progress()

    def _count(self, progress: LogProgress, step: int, when: float) -> None:
        counter = self._counter
        since = counter.moved_time or self._begun
        self._longest = max(self._longest, when - since)
        before = (counter.attempt_high, counter.step_time)
        counter.advance(step, when)
        # A counter that starts again in each epoch passes its high-water mark all the same.
        high = step if progress.high_water is None else max(step, progress.high_water)
        counter.attempt_high, counter.step_time = (high, when) if high > before[0] else before
        counter.nonfinite += is_nonfinite(progress.loss, progress.grad_norm)


class InferredPhase:
    """The phase of a command that reports none, with its budgets.

    Args:
        printed: what it prints; None where that is not seen.
        thresholds: of the run.
        given: the stall budgets that were given, by phase.
        silence: where no step was seen, the budget of steps is that of silence: whatever is printed counts as a move.
    """

    def __init__(
        self,
        printed: PrintedProgress | None,
        thresholds: Thresholds,
        given: Mapping[str, float],
        *,
        silence: bool = False,
    ) -> None:
        self._silence = silence
        self._printed = printed
        self._thresholds = thresholds
        self._given = given

    def now(self) -> str:
        """Return the phase: `idle` is judged by nothing, as long as no step was seen and no budget is for that time."""
        printed = self._printed
        if printed is None:
            return "idle"
        if printed.first_step is not None:
            return "eval" if printed.is_at_end else "train"
        if self._silence:
            return "train"
        if self._given.keys().isdisjoint((*_BEFORE_STEPS, "train")):
            return "idle"
        return "init" if printed.first_output is None else "load"

    def moved(self) -> float | None:
        """Return when something was last printed, where no step was seen and that counts as a move, Unix seconds."""
        printed = self._printed
        return printed.last_output if self._silence and printed is not None and printed.first_step is None else None

    def may_restart(self, phase: str) -> bool:
        """Return whether the budget of a phase was given: then it counts as if the training had reported the phase."""
        return not self._given.keys().isdisjoint(_BEFORE_STEPS if phase in _BEFORE_STEPS else (phase,))

    def thresholds(self) -> Thresholds:
        """Return the thresholds while the phase is inferred.

        The command reports no phases before its first step: the budget of one is that of the other, or that of steps.
        """
        stall, given = dict(self._thresholds.stall_seconds), self._given
        before = next((given[phase] for phase in (*_BEFORE_STEPS, "train") if phase in given), None)
        if self._printed is not None and before is not None:
            stall |= {phase: before for phase in _BEFORE_STEPS if phase not in given}
        if self._printed is not None and "train" not in given:
            stall["train"] = self._printed.train_budget(stall["train"])
        return self._thresholds.replace(stall_seconds=stall)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
