"""Runs by the metric names of the fine-tuning exporter, made from the samples of the collectors of runs and GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.core.exposition import are_same_objects
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.finetuning.encoded_samples import EncodedSamples
from trainwarden_exporter.finetuning.gpus import GPU_FAMILIES, GpuTotals, SampledGpus
from trainwarden_exporter.finetuning.job import (
    PAUSED,
    RUNNING,
    JobHistograms,
    JobLabels,
    JobValues,
    add_job,
    percent,
    status_number,
)
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.core.metric import Family, Metric
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.sampling.task import CollectorRunner

_VALUES = (
    metrics.TRAINING_EPOCH,
    metrics.TRAINING_STEP,
    metrics.TRAINING_STEPS_TARGET,
    metrics.TRAINING_LOSS,
    metrics.TRAINING_LEARNING_RATE,
    metrics.TRAINING_SAMPLES_PER_SECOND,
    metrics.TRAINING_TOKENS_PER_SECOND,
    metrics.TRAINING_CHECKPOINTS_TOTAL,
    metrics.TRAINING_CHECKPOINT_STEP,
    metrics.TRAINING_CHECKPOINT_TIMESTAMP_SECONDS,
    metrics.TRAINING_CHECKPOINT_SIZE_BYTES,
    metrics.TRAINING_ATTEMPT_START_TIMESTAMP_SECONDS,
    metrics.TRAINING_RUN_END_TIMESTAMP_SECONDS,
)
_FAMILIES = (
    frozenset({*_VALUES, metrics.TRAINING_RUN_INFO, metrics.TRAINING_RUN_STATE, metrics.TRAINING_PHASE}) | GPU_FAMILIES
)

# A sample without anything new costs next to nothing.
INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0


@dataclass
class _RunState:
    """The histograms of one run, and the last values that were observed in them."""

    histograms: JobHistograms = field(default_factory=JobHistograms)
    end: float | None = None
    checkpoint: tuple[float | None, float | None] = (None, None)


class FinetuningView:
    """Exports the ready samples of `runners` by other names. `host` is this node's name in records."""

    name = "finetuning"

    def __init__(self, runners: Sequence[CollectorRunner], host: str) -> None:
        self._runners = runners  # the list may change between two samples
        self._host = host
        self._states: dict[str, _RunState] = {}
        self._last: tuple[list[Encoded], list[Family]] = ([], [])

    def collect(self) -> Iterable[Family]:
        """Return the families of all runs that are on the page."""
        encoded = [one for runner in self._runners for one, _ in runner.ready()]
        known, families = self._last
        if are_same_objects(encoded, known):
            return families
        families = self._families(EncodedSamples(encoded, _FAMILIES))
        self._last = (encoded, families)
        return families

    def _families(self, samples: EncodedSamples) -> list[Family]:
        families = Families()
        runs = _RunSamples(samples)
        if runs.ids:  # else the collector of runs has failed: the histograms stay
            self._states = {run_id: self._states.get(run_id) or _RunState() for run_id in runs.ids}
        gpus = SampledGpus(samples)
        for run_id in runs.ids:
            info, state = runs.info.get(run_id, {}), self._states[run_id]
            self._observe(state, runs, run_id)
            values = runs.values(run_id, self._gpus_of(run_id, runs, gpus))
            add_job(
                families, JobLabels(run_id, info.get("model", ""), info.get("method", "")), values, state.histograms
            )
        return families.collected()

    def _observe(self, state: _RunState, runs: _RunSamples, run_id: str) -> None:
        end, start = (
            runs.value(metrics.TRAINING_RUN_END_TIMESTAMP_SECONDS, run_id),
            runs.value(metrics.TRAINING_ATTEMPT_START_TIMESTAMP_SECONDS, run_id),
        )
        if end is not None and end != state.end:
            state.histograms.durations.observe(None if start is None else end - start)
            state.end = end
        checkpoint = (
            runs.value(metrics.TRAINING_CHECKPOINT_STEP, run_id),
            runs.value(metrics.TRAINING_CHECKPOINT_TIMESTAMP_SECONDS, run_id),
        )
        if checkpoint not in (state.checkpoint, (None, None)):
            state.histograms.sizes.observe(runs.value(metrics.TRAINING_CHECKPOINT_SIZE_BYTES, run_id))
            state.checkpoint = checkpoint

    def _gpus_of(self, run_id: str, runs: _RunSamples, gpus: SampledGpus) -> GpuTotals:
        """Return the totals of the run's GPUs; those of all GPUs if none is attributed and no other run is here."""
        info = runs.info.get(run_id, {})
        if runs.state.get(run_id) != "running" or info.get("host", "") not in ("", self._host):
            return GpuTotals()
        if gpus.are_attributed:
            job_id = info.get("job_id", "") if info.get("scheduler") == "slurm" else ""
            found = gpus.of_run.get(run_id) or gpus.of_slurm_job.get(job_id) or ()
            return gpus.totals(found)
        return gpus.totals() if runs.running_on(self._host) == [run_id] else GpuTotals()


class _RunSamples:
    """The samples of runs, by run."""

    def __init__(self, samples: EncodedSamples) -> None:
        self.info: dict[str, Mapping[str, str]] = {
            labels["run_id"]: labels for labels, _ in samples.of(metrics.TRAINING_RUN_INFO)
        }
        self.state = {
            labels["run_id"]: labels["state"] for labels, value in samples.of(metrics.TRAINING_RUN_STATE) if value
        }
        self._phase = {
            labels["run_id"]: labels["phase"] for labels, value in samples.of(metrics.TRAINING_PHASE) if value
        }
        self._values = {name: samples.by("run_id", name) for name in _VALUES}
        # A run that has only logs has no training_run_info.
        self.ids = sorted(self.info.keys() | self._values[metrics.TRAINING_STEP].keys())

    def value(self, metric: Metric, run_id: str) -> float | None:
        return self._values[metric].get(run_id)

    def running_on(self, host: str) -> list[str]:
        return [
            run_id
            for run_id, state in self.state.items()
            if state == "running" and self.info.get(run_id, {}).get("host", "") in ("", host)
        ]

    def values(self, run_id: str, gpus: GpuTotals) -> JobValues:
        status = status_number(self.state.get(run_id, ""))
        if status == RUNNING and self._phase.get(run_id) == "idle":
            status = PAUSED
        step = self.value(metrics.TRAINING_STEP, run_id)
        return JobValues(
            status=status,
            epoch=self.value(metrics.TRAINING_EPOCH, run_id),
            step=step,
            progress=percent(step, self.value(metrics.TRAINING_STEPS_TARGET, run_id)),
            loss=self.value(metrics.TRAINING_LOSS, run_id),
            learning_rate=self.value(metrics.TRAINING_LEARNING_RATE, run_id),
            samples_per_second=self.value(metrics.TRAINING_SAMPLES_PER_SECOND, run_id),
            tokens_per_second=self.value(metrics.TRAINING_TOKENS_PER_SECOND, run_id),
            gpu_utilization=gpus.utilization,
            gpu_memory_used=gpus.memory_used,
            gpu_memory_total=gpus.memory_total,
            checkpoints=self.value(metrics.TRAINING_CHECKPOINTS_TOTAL, run_id),
        )


def create(runners: Sequence[CollectorRunner], node: Node) -> Sampler:
    """Return the sampler of the view; raise `UsageError` if the collector of runs is not among `runners`."""
    if "runs" not in {runner.name for runner in runners}:
        raise UsageError("--compat.finetuning: expected --collector.runs as well, whose runs it shows")
    return Sampler(single_task(FinetuningView(runners, node.host), INTERVAL_SECONDS, TIMEOUT_SECONDS))
