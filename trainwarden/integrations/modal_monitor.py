"""The calls of `modal_monitor`, for trainings that were written for it: a run record instead of files of its own.

New code calls `trainwarden.run()` itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, ClassVar, TypeVar

from trainwarden.classify import classify_exception, recovery_suggestion
from trainwarden.environment import read_environment
from trainwarden.record.clock import to_iso
from trainwarden.retrying import retry
from trainwarden.training.current import run
from trainwarden.training.events import describe_error
from trainwarden.training.run import Run

_MB = 2**20
# What the CUDA contexts of other processes may use of a GPU before it counts as taken.
_FREE_SHARE = 0.9
_MAX_KEPT = 1000

F = TypeVar("F", bound=Callable[..., Any])

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


@dataclass(frozen=True)
class TrainingContext:
    """A training: what it is, how far it came, how it ended. Times are ISO 8601, unknown values None."""

    script: str
    gpu_type: str | None = None
    log_file: str | None = None
    run_id: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    status: str = "running"
    epochs_completed: int = 0
    steps_completed: int = 0
    final_metric: float | None = None
    checkpoint_path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class GPUMemoryStats:
    """Memory of the current GPU, in MB of 2**20 bytes: in tensors, reserved by PyTorch, highest in tensors, free, all.

    `free_mb` is what no process uses.
    """

    timestamp: str
    allocated_mb: float
    reserved_mb: float
    max_allocated_mb: float
    free_mb: float
    total_mb: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def get_gpu_memory_stats() -> GPUMemoryStats | None:
    """Return the memory of the current GPU; None without PyTorch, or without a GPU that it can use. Never raises."""
    try:
        cuda = _cuda()
        if cuda is None:
            return None
        free, total = cuda.mem_get_info()
        used = cuda.memory_allocated(), cuda.memory_reserved(), cuda.max_memory_allocated()
        return GPUMemoryStats(to_iso(time.time()), *(round(size / _MB, 1) for size in (*used, free, total)))
    except Exception as error:  # noqa: BLE001  # a broken GPU fails the training soon enough
        logger.warning("the memory of the GPU cannot be read: %s", error)
        return None


def check_gpu_health() -> tuple[bool, str]:
    """Return whether every visible GPU computes and is free for this training, and one sentence. Never raises."""
    try:
        cuda = _cuda()
        if cuda is None:
            return False, "PyTorch is not installed, or finds no GPU"
        names = []
        for number in range(cuda.device_count()):
            name = str(cuda.get_device_name(number))
            free, total = cuda.mem_get_info(number)
            if free + cuda.memory_reserved(number) < _FREE_SHARE * total:
                used = (total - free - cuda.memory_reserved(number)) / _MB
                return False, f"GPU {number} ({name}): {used:.0f} of {total / _MB:.0f} MB are used by other processes"
            # A GPU that has fallen off its bus is still counted; it fails the first transfer.
            sys.modules["torch"].ones(1, device=f"cuda:{number}").item()
            names.append(name)
    except Exception as error:  # noqa: BLE001  # whatever state the GPU is in, this is the answer
        return False, f"the GPU gives an error: {type(error).__name__}: {error}"
    return True, f"healthy: {', '.join(names)}"


def log_modal_environment() -> dict[str, str]:
    """Write to the log in which task, region and image of Modal this runs; return it. Tokens are left out."""
    known = {name: value for name, value in read_environment().items() if name.startswith("modal_")}
    logger.info("Modal: %s", ", ".join(f"{name}={value}" for name, value in known.items()) or "this is no task of it")
    return known


def retry_with_backoff(
    max_retries: int = 3,
    initial_delay: float = 1.0,
    max_delay: float = 60.0,
    backoff_multiplier: float = 2.0,
    exceptions: type[Exception] | tuple[type[Exception], ...] = (Exception,),
) -> Callable[[F], F]:
    """Return a decorator that repeats a call after an exception; see `trainwarden.retry`.

    Args:
        max_retries: calls after the first one.
        initial_delay: seconds before the second call.
        max_delay: seconds, the longest delay.
        backoff_multiplier: by which each delay is longer than the one before.
        exceptions: to repeat it after. What the taxonomy calls transient is among them always; a broken GPU never is.
    """
    return retry(
        attempts=max_retries + 1,
        base_seconds=initial_delay,
        max_seconds=max_delay,
        factor=backoff_multiplier,
        on=exceptions,
        random=lambda: 1.0,
    )


class ModalMonitor:
    """Records one training after the other.

    Args:
        log_dir: the folder that holds one folder per run; the library's default if None.
        s3: `s3://bucket/prefix` for a copy. Others see a Modal Volume only once it was committed.
        dir: the name of `log_dir` in `trainwarden.run()`.

    Attributes:
        context: the training that was begun last.
        error_history: what `handle_error()` returned, the last thousand.
        gpu_stats_history: what `record_gpu_stats()` returned, the last thousand.
    """

    # The runs of this process that were given no name: the next one must be another.
    _unnamed: ClassVar[list[str]] = []

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        s3: str | None = None,
        *,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002  # as `run`
    ) -> None:
        self._dir = log_dir if log_dir is not None else dir
        self._s3 = s3
        self._run: Run | None = None
        self._updates = 0
        self._loss: float | None = None
        self.context: TrainingContext | None = None
        self.error_history: list[dict[str, Any]] = []
        self.gpu_stats_history: list[GPUMemoryStats] = []

    @property
    def run(self) -> Run | None:
        """The run in progress, for the calls that the library has beyond these."""
        return self._run

    def start_training(
        self, script: str, gpu_type: str | None = None, log_file: str | os.PathLike[str] | None = None, *,
        run_id: str | None = None, total_steps: int | None = None, **configuration: Any,
    ) -> TrainingContext:  # fmt: skip
        """Begin a run.

        Args:
            script: its name, shown as the method.
            gpu_type: such as T4.
            log_file: where the training writes its log; noted.
            run_id: the same after a restart; as `trainwarden.run()` makes it if None, with the number of the training
                behind it for further ones of this process, each of which is a run of its own.
            total_steps: the step after which the run is finished.
            configuration: numbers and texts for the event `training_configuration`.

        Raises:
            RunRefused: the run must not start.
        """
        if self._run is not None:
            self.complete_training()
        is_named = run_id is not None or "TRAINWARDEN_RUN_ID" in os.environ
        if not is_named and self._unnamed:
            run_id = f"{self._unnamed[0]}-{len(self._unnamed) + 1}"
        self._run = run(run_id, total_steps=total_steps, method=script, dir=self._dir, s3=self._s3)
        if not is_named:
            self._unnamed.append(self._run.run_id)
        self._updates, self._loss = 0, None
        log = None if log_file is None else os.fspath(log_file)
        self._run.note(
            "training_configuration", script=script, gpu_type=gpu_type,
            **({} if log is None else {"log_file": log}), **configuration,
        )  # fmt: skip
        self.context = TrainingContext(script, gpu_type, log, self._run.run_id, start_time=to_iso(time.time()))
        return self.context

    def update_progress(
        self, epoch: float | None = None, step: int | None = None, metric: float | None = None, *,
        loss: float | None = None, **metrics: Any,
    ) -> None:  # fmt: skip
        """Report that the loop has moved; never raises.

        Args:
            epoch: number of the epoch, if a new one begins.
            step: number of the step; the number of calls so far if None.
            metric: what the summary calls `final_metric`.
            loss: of this step.
            metrics: other values.
        """
        if self._run is None or self.context is None:
            logger.warning("update_progress() before start_training() is not recorded")
            return
        self._updates += 1
        self._loss = loss
        if epoch is not None:
            self._run.epoch(epoch)
        more = metrics if metric is None else {"metric": metric, **metrics}
        self._run.step(self._updates if step is None else step, loss=loss, **more)
        self.context = replace(
            self.context,
            epochs_completed=self.context.epochs_completed + (epoch is not None),
            steps_completed=self._updates if step is None else step,
            final_metric=self.context.final_metric if metric is None else metric,
        )

    def record_gpu_stats(self) -> GPUMemoryStats | None:
        """Note the memory of the GPU now, and return it; None without a GPU. The library samples it by itself."""
        stats = get_gpu_memory_stats()
        if stats is not None:
            self.gpu_stats_history = [*self.gpu_stats_history, stats][-_MAX_KEPT:]
            if self._run is not None:
                self._run.note("gpu_memory", **stats.to_dict())
        return stats

    def handle_error(
        self,
        error: BaseException,
        severity: ErrorSeverity | str | None = None,
        category: ErrorCategory | str | None = None,
        context: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Record an error; the taxonomy's severity and category count where none is given. Never raises.

        Args:
            error: the exception.
            severity: how bad it is.
            category: what it is about.
            context: what the training adds.
            more: the same, by name.

        Returns:
            The error as JSON, as it was in the Modal monitor's file: `error_type` is the exception's type.
        """
        stated = [each.value if isinstance(each, Enum) else each for each in (severity, category)]
        details = {**(context or {}), **more}
        found = describe_error(error, stated[0], stated[1], details)
        if self._run is None:
            logger.warning("handle_error() before start_training() is not recorded")
        else:
            self._run.error(error, found.severity, found.category, **details)
        described = {
            "timestamp": to_iso(found.time),
            "error_type": found.exception_type,
            "error_message": found.message,
            "severity": found.severity,
            "category": found.category,
            "traceback": found.traceback,
            "context": details,
            "script": self.context.script if self.context else None,
        }
        self.error_history = [*self.error_history, described][-_MAX_KEPT:]
        return described

    def get_recovery_suggestion(self, error: BaseException) -> str:
        """Return what to change after such an error."""
        return recovery_suggestion(error)

    def complete_training(
        self,
        status: str = "completed",
        final_metric: float | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """End the run.

        In a `finally` block the exception that leaves it counts, whatever `status` says.

        Args:
            status: completed; any other is a failure.
            final_metric: of the whole training; the last one that was reported if None.
            checkpoint_path: of its result, complete on disk.
        """
        ended, self._run = self._run, None
        if ended is None or self.context is None:
            return
        if checkpoint_path is not None:
            ended.checkpoint_saved(checkpoint_path)
        if final_metric is not None:
            ended.step(self.context.steps_completed, loss=self._loss, metric=final_metric)
        left = sys.exc_info()[1]
        if left is None and status != "completed":
            left = TrainingError(f"the training ended as {status[:100]}")
        self.context = replace(
            self.context,
            end_time=to_iso(time.time()),
            status="failed" if left is not None and status == "completed" else status,
            final_metric=self.context.final_metric if final_metric is None else final_metric,
            checkpoint_path=None if checkpoint_path is None else os.fspath(checkpoint_path),
        )
        if left is None:
            ended.finish()
        else:
            ended.__exit__(type(left), left, left.__traceback__)

    @contextlib.contextmanager
    def track_training(
        self, script: str, gpu_type: str | None = None, log_file: str | os.PathLike[str] | None = None,
        **configuration: Any,
    ) -> Iterator[ModalMonitor]:  # fmt: skip
        """Record a training from here to the end of the block; an exception that leaves it is how it failed."""
        self.start_training(script, gpu_type, log_file, **configuration)
        try:
            yield self
        finally:
            self.complete_training()


def track_training(
    script: str, gpu_type: str | None = None, log_file: str | os.PathLike[str] | None = None,
    monitor: ModalMonitor | None = None, **configuration: Any,
) -> contextlib.AbstractContextManager[ModalMonitor]:  # fmt: skip
    """Record a training from here to the end of the block; see `ModalMonitor.track_training`."""
    return (monitor or ModalMonitor()).track_training(script, gpu_type, log_file, **configuration)


def category_of(error: BaseException) -> ErrorCategory:
    """Return the category of an error by the taxonomy."""
    return ErrorCategory(classify_exception(error).category)


def _cuda() -> Any | None:
    try:
        import torch  # noqa: PLC0415  # of those trainings that have it
    except ImportError:
        return None
    return torch.cuda if torch.cuda.is_available() else None
