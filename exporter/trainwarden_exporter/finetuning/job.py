"""One fine-tuning job, as it is exported."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trainwarden.redaction import label_text, name_text
from trainwarden_exporter.finetuning import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.core.metric import Families

PENDING, RUNNING, SUCCEEDED, FAILED, PAUSED = range(5)
ENDED = frozenset({SUCCEEDED, FAILED})
# finetuning_job_status has one number for failed and cancelled; training_run_state has both.
_STATUS_NUMBERS = {
    **dict.fromkeys(("pending", "queued", "created", "submitted", "initializing", "starting"), PENDING),
    **dict.fromkeys(("running", "training", "in_progress", "active", "started", "evaluating"), RUNNING),
    **dict.fromkeys(("succeeded", "success", "successful", "completed", "complete", "finished", "done"), SUCCEEDED),
    **dict.fromkeys(("failed", "failure", "error", "crashed", "cancelled", "canceled", "stopped", "timeout"), FAILED),
    **dict.fromkeys(("paused", "suspended", "idle"), PAUSED),
}

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
# From a smoke test to a month.
DURATION_SECONDS = (
    _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR,
    _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY,
)  # fmt: skip
# From an adapter of a few megabytes to the whole state of a large model.
SIZE_BYTES = (1e6, 1e7, 5e7, 1e8, 5e8, 1e9, 5e9, 1e10, 5e10, 1e11, 5e11, 1e12)


def status_number(name: str) -> int | None:
    """Return the number of a status by any of its names; None if it is none of them."""
    return _STATUS_NUMBERS.get(name.strip().lower().replace(" ", "_").replace("-", "_"))


def percent(done: float | None, total: float | None) -> float | None:
    """Return the share that is done, 0 to 100; None if one of the numbers is not known."""
    if done is None or total is None or total <= 0:
        return None
    return min(100.0, max(0.0, 100.0 * done / total))


class JobLabels(NamedTuple):
    """The labels of a job."""

    job_name: str
    model_id: str = ""
    method: str = ""


@dataclass(frozen=True)
class JobValues:
    """The values of a job now; None where not known. Progress and utilisation in percent, memory in bytes."""

    status: int | None = None
    epoch: float | None = None
    step: float | None = None
    progress: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    gpu_utilization: float | None = None
    gpu_memory_used: float | None = None
    gpu_memory_total: float | None = None
    checkpoints: float | None = None


# By the field of `JobValues`.
_SERIES = {
    "status": metrics.FINETUNING_JOB_STATUS,
    "epoch": metrics.FINETUNING_TRAINING_EPOCH,
    "step": metrics.FINETUNING_TRAINING_STEP,
    "progress": metrics.FINETUNING_TRAINING_PROGRESS,
    "learning_rate": metrics.FINETUNING_LEARNING_RATE,
    "samples_per_second": metrics.FINETUNING_SAMPLES_PER_SECOND,
    "tokens_per_second": metrics.FINETUNING_TOKENS_PER_SECOND,
    "gpu_utilization": metrics.FINETUNING_GPU_UTILIZATION_PERCENT,
    "gpu_memory_used": metrics.FINETUNING_GPU_MEMORY_USED_BYTES,
    "gpu_memory_total": metrics.FINETUNING_GPU_MEMORY_TOTAL_BYTES,
    "checkpoints": metrics.FINETUNING_CHECKPOINTS_TOTAL,
}


class ObservationHistogram:
    """Counts observations by their upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self.total = 0.0

    def observe(self, value: float | None) -> None:
        """Count a value, unless it is negative, not finite or None."""
        if value is not None and math.isfinite(value) and value >= 0:
            self._counts[bisect.bisect_left(self._bounds, value)] += 1
            self.total += value

    @property
    def buckets(self) -> list[tuple[float, int]]:
        """Each upper bound with the number of observations up to it; the last bound is infinite."""
        return list(zip(self._bounds, itertools.accumulate(self._counts), strict=True))


@dataclass
class JobHistograms:
    """Each attempt's duration and each checkpoint's size, observed once."""

    durations: ObservationHistogram = field(default_factory=lambda: ObservationHistogram(DURATION_SECONDS))
    sizes: ObservationHistogram = field(default_factory=lambda: ObservationHistogram(SIZE_BYTES))


def shown_labels(labels: JobLabels) -> dict[str, str]:
    """Return the labels of a job as they are exported."""
    named = {name: label_text(value) for name, value in labels._asdict().items()}
    return {**named, "job_name": name_text(labels.job_name)}


def add_job(families: Families, labels: JobLabels, values: JobValues, histograms: JobHistograms) -> None:
    """Add a job's series."""
    named = shown_labels(labels)
    for field_name, series in _SERIES.items():
        families.add(series, getattr(values, field_name), **named)
    # One series for each job: that of the last epoch ends when a new one begins.
    epoch = "" if values.epoch is None else str(int(values.epoch))
    families.add(metrics.FINETUNING_TRAIN_LOSS, values.loss, **named, epoch=epoch)
    for name, histogram in (
        (metrics.FINETUNING_JOB_DURATION_SECONDS, histograms.durations),
        (metrics.FINETUNING_CHECKPOINT_SIZE_BYTES, histograms.sizes),
    ):
        families.add_histogram(name, histogram.buckets, histogram.total, **named)
