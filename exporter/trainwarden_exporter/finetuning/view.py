"""Runs by the names of the fine-tuning exporter: a view of what the collectors of runs and GPUs have sampled."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.finetuning.encoded import Samples
from trainwarden_exporter.finetuning.gpus import GPU_FAMILIES, Gpus, Together
from trainwarden_exporter.finetuning.job import (
    PAUSED,
    RUNNING,
    Labels,
    Observed,
    Reading,
    add_job,
    percent,
    status_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.core.metric import Family, Metric
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


@dataclass
class _Seen:
    """What has been observed of one run, and what was the last of it."""

    observed: Observed = field(default_factory=Observed)
    end: float | None = None
    checkpoint: tuple[float | None, float | None] = (None, None)


class FinetuningView:
    """Exports what `members` have ready, whichever are in that list then. `host` is this node's name in records."""

    name = "finetuning"

    def __init__(self, members: Sequence[CollectorRunner], host: str) -> None:
        self._members = members  # as they are at each look: others may take their places
        self._host = host
        self._seen: dict[str, _Seen] = {}
        self._last: tuple[list[Encoded], list[Family]] = ([], [])

    def collect(self) -> Iterable[Family]:
        """Return the families of all runs that are on the page."""
        encoded = [one for member in self._members for one, _ in member.ready()]
        known, families = self._last
        if len(encoded) == len(known) and all(map(operator.is_, encoded, known)):
            return families
        families = self._families(Samples(encoded, _FAMILIES))
        self._last = (encoded, families)
        return families

    def _families(self, samples: Samples) -> list[Family]:
        families = Families()
        runs = _Runs(samples)
        if runs.ids:  # else the collector of runs has failed: what was observed stays
            self._seen = {run_id: self._seen.get(run_id) or _Seen() for run_id in runs.ids}
        gpus = Gpus(samples)
        for run_id in runs.ids:
            info, seen = runs.info.get(run_id, {}), self._seen[run_id]
            self._observe(seen, runs, run_id)
            reading = runs.reading(run_id, self._gpus_of(run_id, runs, gpus))
            add_job(families, Labels(run_id, info.get("model", ""), info.get("method", "")), reading, seen.observed)
        return families.collected()

    def _observe(self, seen: _Seen, runs: _Runs, run_id: str) -> None:
        end, start = (
            runs.value(metrics.TRAINING_RUN_END_TIMESTAMP_SECONDS, run_id),
            runs.value(metrics.TRAINING_ATTEMPT_START_TIMESTAMP_SECONDS, run_id),
        )
        if end is not None and end != seen.end:
            seen.observed.durations.observe(None if start is None else end - start)
            seen.end = end
        checkpoint = (
            runs.value(metrics.TRAINING_CHECKPOINT_STEP, run_id),
            runs.value(metrics.TRAINING_CHECKPOINT_TIMESTAMP_SECONDS, run_id),
        )
        if checkpoint not in (seen.checkpoint, (None, None)):
            seen.observed.sizes.observe(runs.value(metrics.TRAINING_CHECKPOINT_SIZE_BYTES, run_id))
            seen.checkpoint = checkpoint

    def _gpus_of(self, run_id: str, runs: _Runs, gpus: Gpus) -> Together:
        """Those that are known to work for the run; all, where nothing is known and no other run is here."""
        info = runs.info.get(run_id, {})
        if runs.state.get(run_id) != "running" or info.get("host", "") not in ("", self._host):
            return Together()
        if gpus.are_attributed:
            job_id = info.get("job_id", "") if info.get("scheduler") == "slurm" else ""
            found = gpus.of_run.get(run_id) or gpus.of_slurm_job.get(job_id) or ()
            return gpus.together(found)
        return gpus.together() if runs.running_on(self._host) == [run_id] else Together()


class _Runs:
    """The series of runs, by run."""

    def __init__(self, samples: Samples) -> None:
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
        # A run that only its logs tell of has no record to be described by.
        self.ids = sorted(self.info.keys() | self._values[metrics.TRAINING_STEP].keys())

    def value(self, metric: Metric, run_id: str) -> float | None:
        return self._values[metric].get(run_id)

    def running_on(self, host: str) -> list[str]:
        return [
            run_id
            for run_id, state in self.state.items()
            if state == "running" and self.info.get(run_id, {}).get("host", "") in ("", host)
        ]

    def reading(self, run_id: str, gpus: Together) -> Reading:
        status = status_number(self.state.get(run_id, ""))
        if status == RUNNING and self._phase.get(run_id) == "idle":
            status = PAUSED
        step = self.value(metrics.TRAINING_STEP, run_id)
        return Reading(
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
