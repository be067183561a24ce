"""One fine-tuning job, as it is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.finetuning import metrics
from trainwarden_exporter.finetuning.histogram import DURATION_SECONDS, SIZE_BYTES, Histogram

if TYPE_CHECKING:
    from trainwarden_exporter.core.metric import Families

PENDING, RUNNING, SUCCEEDED, FAILED, PAUSED = range(5)
ENDED = frozenset({SUCCEEDED, FAILED})
# A job that was cancelled did not do what it was started for; training_run_state tells the two apart.
_STATUSES = {
    **dict.fromkeys(("pending", "queued", "created", "submitted", "initializing", "starting"), PENDING),
    **dict.fromkeys(("running", "training", "in_progress", "active", "started", "evaluating"), RUNNING),
    **dict.fromkeys(("succeeded", "success", "successful", "completed", "complete", "finished", "done"), SUCCEEDED),
    **dict.fromkeys(("failed", "failure", "error", "crashed", "cancelled", "canceled", "stopped", "timeout"), FAILED),
    **dict.fromkeys(("paused", "suspended", "idle"), PAUSED),
}


def status_number(word: str) -> int | None:
    """Return the number of a status by any of its names; None for a word that is none."""
    return _STATUSES.get(word.strip().lower().replace(" ", "_").replace("-", "_"))


def percent(done: float | None, total: float | None) -> float | None:
    """Return how much is done, 0 to 100; None where that cannot be said."""
    if done is None or total is None or total <= 0:
        return None
    return min(100.0, max(0.0, 100.0 * done / total))


class Labels(NamedTuple):
    """What a job is called."""

    job_name: str
    model_id: str = ""
    method: str = ""


@dataclass(frozen=True)
class Reading:
    """What is known of a job now; None is what is not. Progress and utilisation are in percent, memory in bytes."""

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


# By the field of a reading.
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


@dataclass
class Observed:
    """What was observed of a job, once each: how long its attempts ran, how large its checkpoints are."""

    durations: Histogram = field(default_factory=lambda: Histogram(DURATION_SECONDS))
    sizes: Histogram = field(default_factory=lambda: Histogram(SIZE_BYTES))


def add_job(families: Families, labels: Labels, reading: Reading, observed: Observed) -> None:
    """Add a job's series."""
    named = {name: label_text(value) for name, value in labels._asdict().items()}
    for field_name, series in _SERIES.items():
        families.add(series, getattr(reading, field_name), **named)
    # One series: that of the epoch before is gone as soon as there is a new one.
    epoch = "" if reading.epoch is None else str(int(reading.epoch))
    families.add(metrics.FINETUNING_TRAIN_LOSS, reading.loss, **named, epoch=epoch)
    for name, histogram in (
        (metrics.FINETUNING_JOB_DURATION_SECONDS, observed.durations),
        (metrics.FINETUNING_CHECKPOINT_SIZE_BYTES, observed.sizes),
    ):
        families.add_histogram(name, histogram.buckets, histogram.total, **named)
