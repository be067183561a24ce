"""The class and the calls that scripts for the fine-tuning exporter use: for them only the import changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwarden_exporter.finetuning.metrics_exporter import JobMetrics, MetricsExporter


@dataclass
class TrainingMetrics:
    """What a training reports at once. Utilisation is in percent, memory in bytes."""

    job_name: str
    model_id: str
    method: str
    current_epoch: float
    total_epochs: float
    current_step: float
    total_steps: float
    train_loss: float
    learning_rate: float
    gpu_utilization: float | None = None
    gpu_memory_used: float | None = None
    gpu_memory_total: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None


class FineTuningMetricsExporter:
    """A `MetricsExporter` whose calls name the job each time; other arguments are those of `MetricsExporter`."""

    def __init__(self, port: int = 8000, **options: Any) -> None:
        self.exporter = MetricsExporter(port, **options)
        self._methods: dict[tuple[str, str], str] = {}

    def start_server(self) -> bool:
        """Listen, once for each process; False if the address cannot be had."""
        return self.exporter.start_server()

    def stop(self) -> None:
        """End serving."""
        self.exporter.stop()

    def update_job_status(self, job_name: str, model_id: str, method: str, status: str) -> None:
        """Say how a job is doing: Pending, Running, Succeeded, Failed, Paused."""
        self._job(job_name, model_id, method).update_job_status(status)

    def update_training_metrics(self, metrics: TrainingMetrics) -> None:
        """Say all that is known of a job."""
        job = self._job(metrics.job_name, metrics.model_id, metrics.method)
        job.update_progress(
            metrics.current_epoch,
            metrics.current_step,
            total_steps=metrics.total_steps,
            total_epochs=metrics.total_epochs,
        )
        job.update_loss(metrics.train_loss)
        job.update_learning_rate(metrics.learning_rate)
        job.update_throughput(metrics.samples_per_second, metrics.tokens_per_second)
        job.update_gpu(metrics.gpu_utilization, metrics.gpu_memory_used, metrics.gpu_memory_total)

    def record_checkpoint(self, job_name: str, model_id: str, checkpoint_size: float) -> None:
        """Count a checkpoint and its size in bytes."""
        self._job(job_name, model_id).checkpoint_saved(checkpoint_size)

    def record_job_duration(self, job_name: str, model_id: str, method: str, duration_seconds: float) -> None:
        """Say how long a job ran, once, at its end."""
        self._job(job_name, model_id, method).record_job_duration(duration_seconds)

    def _job(self, job_name: str, model_id: str, method: str | None = None) -> JobMetrics:
        """The job of that name; where a call does not say its method, an earlier one has."""
        known = self._methods.get((job_name, model_id), "") if method is None else method
        self._methods[job_name, model_id] = known
        return self.exporter.job(job_name, model_id, known)
