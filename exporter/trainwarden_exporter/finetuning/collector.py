"""The collector of `trainwarden metrics-server`: the file or run record that a training writes about itself."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.record.thresholds import Thresholds
from trainwarden.redaction import plain
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.finetuning import metrics
from trainwarden_exporter.finetuning.encoded_samples import EncodedSamples
from trainwarden_exporter.finetuning.gpus import GPU_FAMILIES, SampledGpus
from trainwarden_exporter.finetuning.info_file import TrainingInfoFile, UnusableInfoFile, is_run_record
from trainwarden_exporter.finetuning.job import (
    ENDED,
    PAUSED,
    PENDING,
    RUNNING,
    JobHistograms,
    JobValues,
    add_job,
    percent,
    shown_labels,
    status_number,
)
from trainwarden_exporter.finetuning.training_info import SavedCheckpoint, TrainingInfo, parse_training_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.finetuning.job import JobLabels
    from trainwarden_exporter.sampling.task import CollectorRunner

log = logging.getLogger(__name__)

MISSING, UNREADABLE, UNEXPECTED = "missing", "unreadable", "unexpected_value"
REASONS = (MISSING, UNREADABLE, UNEXPECTED)


class TrainingInfoCollector:
    """Exports the values in the file or run record at `path`, which may not exist yet.

    Args:
        path: of the file or folder; None to export only the GPUs.
        labels: of the job.
        gpus: sample this node's GPUs.
    """

    name = "training_info"

    def __init__(self, path: Path | None, labels: JobLabels, gpus: Sequence[CollectorRunner] = ()) -> None:
        self._path = path
        self._labels = labels
        self._gpus = gpus
        self._file = TrainingInfoFile(path) if path else None
        self._folder = RunFolder(path, Thresholds()) if path else None
        self._histograms = JobHistograms()
        self._errors: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._logged: str | None = None
        self._last: TrainingInfo | None = None
        self._modified: float | None = None
        self._checkpoints: set[str] = set()

    def collect(self) -> Iterable[Family]:
        """Return the job's families as they are now; a file that is missing or broken leaves the last good values."""
        self._read()
        families = Families()
        values = self._last.values if self._last else JobValues(status=PENDING if self._path else RUNNING)
        add_job(families, self._labels, self._with_gpus(values), self._histograms)
        named = shown_labels(self._labels)
        if self._path:
            families.add(metrics.FINETUNING_INFO_FILE_TIMESTAMP_SECONDS, self._modified, **named)
            for reason in REASONS:
                families.add(metrics.FINETUNING_INFO_FILE_ERRORS_TOTAL, self._errors[reason], **named, reason=reason)
        return families.collected()

    def _read(self) -> None:
        if self._path is None or self._file is None or self._folder is None:
            return
        try:
            if is_run_record(self._path):
                info, self._modified = read_run_record(self._folder)
            else:
                document = self._file.changed()
                if document is None:
                    return
                info, self._modified = parse_training_info(document), self._file.modified
        except (FileNotFoundError, NotADirectoryError):
            if self._last is not None:
                self._problem(MISSING, f"{self._path} is gone; its last values stay")
            return
        except (UnusableInfoFile, OSError) as error:
            self._problem(UNREADABLE, str(error))
            return
        self._update(info)
        if info.problems:
            self._problem(UNEXPECTED, info.problems[0])
        else:
            self._logged = None

    def _update(self, info: TrainingInfo) -> None:
        before, status = self._last, info.values.status
        ended_before = before is not None and before.values.status in ENDED
        if status in ENDED and not (ended_before and before is not None and before.duration == info.duration):
            self._histograms.durations.observe(info.duration)
        for checkpoint in info.checkpoints:
            if checkpoint.key not in self._checkpoints:
                self._checkpoints.add(checkpoint.key)
                self._histograms.sizes.observe(checkpoint.size)
        if info.values.checkpoints is None and self._checkpoints:
            info = replace(info, values=replace(info.values, checkpoints=len(self._checkpoints)))
        self._last = info

    def _with_gpus(self, values: JobValues) -> JobValues:
        encoded = [one for runner in self._gpus for one, _ in runner.ready()]
        if not encoded or values.status in ENDED:
            return values
        gpus = SampledGpus(EncodedSamples(encoded, GPU_FAMILIES)).totals()
        return replace(
            values,
            gpu_utilization=gpus.utilization,
            gpu_memory_used=gpus.memory_used,
            gpu_memory_total=gpus.memory_total,
        )

    def _problem(self, reason: str, text: str) -> None:
        self._errors[reason] += 1
        if text != self._logged:
            log.warning("%s", plain(text)[:500])
        self._logged = text


def read_run_record(folder: RunFolder) -> tuple[TrainingInfo, float]:
    """Return the values of a run record and its last change, Unix seconds; raise `OSError` if it cannot be read."""
    record = folder.read(time.time())
    progress = record.current_progress
    status = status_number(record.state or "")
    if status == RUNNING and record.metadata and record.metadata.phase == "idle":
        status = PAUSED
    values = JobValues(status=status)
    saved: tuple[SavedCheckpoint, ...] = ()
    if progress:
        values = JobValues(
            status=status,
            epoch=progress.epoch,
            step=progress.step,
            progress=percent(progress.step, progress.total_steps),
            loss=progress.loss,
            learning_rate=progress.learning_rate,
            samples_per_second=progress.samples_per_second,
            tokens_per_second=progress.tokens_per_second,
            checkpoints=progress.checkpoints_saved,
        )
        last = progress.checkpoint
        if last:
            saved = (SavedCheckpoint(f"{last.path}@{last.step}@{last.time}", last.size_bytes),)
    start, end = record.attempt_start, record.end
    duration = end - start if start is not None and end is not None else None
    problems = tuple(problem.text for problem in folder.problems)
    changed = [metadata.last_update for metadata in (record.metadata,) if metadata and metadata.last_update is not None]
    return TrainingInfo(values, duration, saved, problems), max([*changed, record.modified])
