"""The one rule by which steps are counted, for the library and for shell commands."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainwarden.record.progress import Progress

_INFINITY = float("inf")


class StepCounter:
    """The counters of one attempt, begun with what its run has counted before. Times are Unix seconds.

    Attributes:
        step: reported last; None before the first report.
        first_step: that this attempt reported.
        attempt_high: the highest step of this attempt.
        step_time: when `attempt_high` last rose.
        moved_time: when a step other than the one before was last reported, higher or lower.
        high_water: the highest step of the whole run.
        steps_completed: over the whole run; repeated steps count again.
        nonfinite: reports of the whole run whose loss or gradient norm was NaN or infinite.
    """

    __slots__ = (
        "attempt_high",
        "first_step",
        "high_water",
        "moved_time",
        "nonfinite",
        "step",
        "step_time",
        "steps_completed",
    )

    def __init__(self, high_water: int | None = None, steps_completed: int = 0, nonfinite: int = 0) -> None:
        self.step: int | None = None
        self.first_step: int | None = None
        self.attempt_high = -1
        self.step_time: float | None = None
        self.moved_time: float | None = None
        self.high_water = high_water
        self.steps_completed = steps_completed
        self.nonfinite = nonfinite

    @classmethod
    def of_run(cls, progress: Progress | None) -> StepCounter:
        """Return the counter of a new attempt of the run that has made `progress`."""
        if progress is None:
            return cls()
        high_water = progress.high_water if progress.high_water is not None else progress.step
        return cls(high_water, progress.steps_completed or 0, progress.nonfinite or 0)

    @classmethod
    def of_attempt(cls, progress: Progress) -> StepCounter:
        """Return the counter of the attempt that has made `progress`, to go on with."""
        counter = cls.of_run(progress)
        counter.step = progress.step
        counter.step_time = progress.step_time
        counter.moved_time = progress.moved_time
        if progress.attempt_high is not None:
            counter.attempt_high = progress.attempt_high
        return counter

    def advance(self, step: int, now: float) -> None:
        """Count a report of `step`, 0 or more."""
        before = self.step
        if before is None:
            self.first_step = step
            self.steps_completed += 1
            self.moved_time = now
        elif step != before:
            # A loop that reports every tenth step has made ten; one that was set back repeats.
            self.steps_completed += step - before if step > before else 1
            self.moved_time = now
        self.step = step
        if step > self.attempt_high:
            self.attempt_high = step
            self.step_time = now
        if self.high_water is None or step > self.high_water:
            self.high_water = step

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of `Progress` that are counted here, without `attempt_high`."""
        return {
            "step": self.step,
            "step_time": self.step_time,
            "moved_time": self.moved_time,
            "high_water": self.high_water,
            "steps_completed": self.steps_completed,
            "nonfinite": self.nonfinite,
        }


def is_nonfinite(loss: float | None, grad_norm: float | None) -> bool:
    """Return whether a report with these values counts as `nonfinite`; None is a value that was not reported."""
    return not (
        (loss is None or -_INFINITY < loss < _INFINITY) and (grad_norm is None or -_INFINITY < grad_norm < _INFINITY)
    )
