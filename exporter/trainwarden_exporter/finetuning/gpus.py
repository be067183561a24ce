"""The GPUs of this node that work for a job, and their totals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu_jobs import metrics as gpu_jobs_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainwarden_exporter.finetuning.encoded_samples import EncodedSamples

UTILIZATION, USED, SIZE = metrics.GPU_UTILIZATION_RATIO, metrics.GPU_MEMORY_USED_BYTES, metrics.GPU_MEMORY_SIZE_BYTES
RUN_OF_GPU, SLURM_JOB_OF_GPU = gpu_jobs_metrics.TRAINING_GPU_INFO, gpu_jobs_metrics.SLURM_GPU_JOB_INFO
GPU_FAMILIES = frozenset({UTILIZATION, USED, SIZE, RUN_OF_GPU, SLURM_JOB_OF_GPU})


class GpuId(NamedTuple):
    """The identity of a GPU."""

    number: str
    uuid: str


@dataclass(frozen=True)
class GpuTotals:
    """Mean utilisation in percent and sums of memory in bytes of some GPUs; None where none of them has the value."""

    utilization: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None


class SampledGpus:
    """The GPUs of this node as they were sampled last."""

    def __init__(self, samples: EncodedSamples) -> None:
        self._values = {
            name: {_gpu(labels): value for labels, value in samples.of(name)} for name in (UTILIZATION, USED, SIZE)
        }
        self.of_run: dict[str, set[GpuId]] = {}
        self.of_slurm_job: dict[str, set[GpuId]] = {}
        for found, name, label in (
            (self.of_run, RUN_OF_GPU, "run_id"),
            (self.of_run, SLURM_JOB_OF_GPU, "run_id"),
            (self.of_slurm_job, SLURM_JOB_OF_GPU, "job_id"),
        ):
            for labels, _ in samples.of(name):
                if labels.get(label):
                    found.setdefault(labels[label], set()).add(_gpu(labels))

    @property
    def are_attributed(self) -> bool:
        """The job of at least one GPU is known."""
        return bool(self.of_run or self.of_slurm_job)

    def totals(self, gpus: Iterable[GpuId] | None = None) -> GpuTotals:
        """Return the totals of these GPUs, by default of all."""
        chosen = None if gpus is None else set(gpus)
        utilization, used, size = (
            [value for gpu, value in self._values[name].items() if chosen is None or gpu in chosen]
            for name in (UTILIZATION, USED, SIZE)
        )
        return GpuTotals(
            100.0 * statistics.fmean(utilization) if utilization else None,
            sum(used) if used else None,
            sum(size) if size else None,
        )


def _gpu(labels: Mapping[str, str]) -> GpuId:
    return GpuId(labels.get("gpu", ""), labels.get("uuid", ""))
