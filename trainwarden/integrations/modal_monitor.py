"""The calls of `modal_monitor`, for trainings that were written for it: a run record instead of files of its own.

New code calls `trainwarden.run()` itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any

from trainwarden.classify import classify_exception, recovery_suggestion
from trainwarden.training.current import run
from trainwarden.training.run import Run

logger = logging.getLogger("trainwarden")


class ErrorSeverity(Enum):
    """How bad an error is."""

    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    FATAL = "fatal"


class ErrorCategory(Enum):
    """What an error is about."""

    DATA_LOADING = "data_loading"
    MODEL_CREATION = "model_creation"
    TRAINING = "training"
    MEMORY = "memory"
    CHECKPOINT = "checkpoint"
    NETWORK = "network"
    CONFIGURATION = "configuration"
    UNKNOWN = "unknown"


class TrainingError(Exception):
    """A training failed; raise it from the exception that was the cause."""


class ModalMonitor:
    """Records one training after the other.

    Args:
        dir: the folder that holds one folder per run; the library's default if None.
        s3: `s3://bucket/prefix` for a copy. Others see a Modal Volume only once it was committed.
    """

    def __init__(self, dir: str | os.PathLike[str] | None = None, s3: str | None = None) -> None:  # noqa: A002  # as `run`
        self._dir = dir
        self._s3 = s3
        self._run: Run | None = None
        self._updates = 0

    @property
    def run(self) -> Run | None:
        """The run in progress, for the calls that the library has beyond these."""
        return self._run

    def start_training(
        self, script: str, gpu_type: str | None = None, *, run_id: str | None = None, total_steps: int | None = None,
        **configuration: Any,
    ) -> None:  # fmt: skip
        """Begin a run.

        Args:
            script: its name, shown as the method.
            gpu_type: such as T4.
            run_id: the same after a restart; as `trainwarden.run()` makes it if None.
            total_steps: the step after which the run is finished.
            configuration: numbers and texts for the event `training_configuration`.

        Raises:
            RunRefused: the run must not start.
        """
        if self._run is not None:
            self.complete_training()
        self._run, self._updates = run(run_id, total_steps=total_steps, method=script, dir=self._dir, s3=self._s3), 0
        self._run.note("training_configuration", script=script, gpu_type=gpu_type, **configuration)

    def update_progress(
        self, epoch: float | None = None, metric: float | None = None, *, step: int | None = None,
        loss: float | None = None, **metrics: Any,
    ) -> None:  # fmt: skip
        """Report that the loop has moved; never raises.

        Args:
            epoch: number of the epoch, if a new one begins.
            metric: what the summary calls `final_metric`.
            step: number of the step; the number of calls so far if None.
            loss: of this step.
            metrics: other values.
        """
        if self._run is None:
            logger.warning("update_progress() before start_training() is not recorded")
            return
        self._updates += 1
        if epoch is not None:
            self._run.epoch(epoch)
        more = metrics if metric is None else {"metric": metric, **metrics}
        self._run.step(self._updates if step is None else step, loss=loss, **more)

    def handle_error(
        self,
        error: BaseException,
        severity: ErrorSeverity | None = None,
        category: ErrorCategory | None = None,
        **context: Any,
    ) -> None:
        """Record an error; the taxonomy's severity and category count where none is given. Never raises."""
        if self._run is None:
            logger.warning("handle_error() before start_training() is not recorded")
            return
        self._run.error(error, severity and severity.value, category and category.value, **context)

    def get_recovery_suggestion(self, error: BaseException) -> str:
        """Return what to change after such an error."""
        return recovery_suggestion(error)

    def complete_training(self, status: str = "completed") -> None:
        """End the run.

        In a `finally` block the exception that leaves it counts, whatever `status` says.

        Args:
            status: completed; any other is a failure.
        """
        ended, self._run = self._run, None
        if ended is None:
            return
        left = sys.exc_info()[1]
        if left is None and status != "completed":
            left = TrainingError(f"the training ended as {status[:100]}")
        if left is None:
            ended.finish()
        else:
            ended.__exit__(type(left), left, left.__traceback__)


@contextlib.contextmanager
def track_training(
    script: str, gpu_type: str | None = None, monitor: ModalMonitor | None = None, **configuration: Any
) -> Iterator[ModalMonitor]:
    """Record a training from here to the end of the block; an exception that leaves it is how it failed."""
    tracked = monitor or ModalMonitor()
    tracked.start_training(script, gpu_type, **configuration)
    try:
        yield tracked
    finally:
        tracked.complete_training()


def category_of(error: BaseException) -> ErrorCategory:
    """Return the category of an error by the taxonomy."""
    return ErrorCategory(classify_exception(error).category)
