"""Follows the file that a training writes about itself, and keeps what it said last."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text, plain
from trainwarden_exporter.finetuning import metrics
from trainwarden_exporter.finetuning.encoded import Samples
from trainwarden_exporter.finetuning.gpus import GPU_FAMILIES, Gpus
from trainwarden_exporter.finetuning.info_file import InfoFile, Unusable, is_run_record
from trainwarden_exporter.finetuning.job import ENDED, PENDING, RUNNING, Observed, Reading, add_job
from trainwarden_exporter.finetuning.run_record import read_run
from trainwarden_exporter.finetuning.training_info import TrainingInfo, understand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.finetuning.job import Labels
    from trainwarden_exporter.sampling.task import CollectorRunner

log = logging.getLogger(__name__)

MISSING, UNREADABLE, UNEXPECTED = "missing", "unreadable", "unexpected_value"
REASONS = (MISSING, UNREADABLE, UNEXPECTED)


class Follower:
    """Exports what the file at `path` says of the job `labels`; `gpus` sample this node's GPUs."""

    name = "training_info"

    def __init__(self, path: Path | None, labels: Labels, gpus: Sequence[CollectorRunner] = ()) -> None:
        self._path = path
        self._labels = labels
        self._gpus = gpus
        self._file = InfoFile(path) if path else None
        self._folder = RunFolder(path, Thresholds()) if path else None
        self._observed = Observed()
        self._errors: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._logged: str | None = None
        self._last: TrainingInfo | None = None
        self._modified: float | None = None
        self._checkpoints: set[str] = set()

    def collect(self) -> Iterable[Family]:
        """Return the job's families as they are now; a file that is missing or broken leaves the last good values."""
        self._look()
        families = Families()
        reading = self._last.reading if self._last else Reading(status=PENDING if self._path else RUNNING)
        add_job(families, self._labels, self._with_gpus(reading), self._observed)
        named = {name: label_text(value) for name, value in self._labels._asdict().items()}
        if self._path:
            families.add(metrics.FINETUNING_INFO_FILE_TIMESTAMP_SECONDS, self._modified, **named)
            for reason in REASONS:
                families.add(metrics.FINETUNING_INFO_FILE_ERRORS_TOTAL, self._errors[reason], **named, reason=reason)
        return families.collected()

    def _look(self) -> None:
        if self._path is None or self._file is None or self._folder is None:
            return
        try:
            if is_run_record(self._path):
                info, self._modified = read_run(self._folder)
            else:
                document = self._file.changed()
                if document is None:
                    return
                info, self._modified = understand(document), self._file.modified
        except (FileNotFoundError, NotADirectoryError):
            if self._last is not None:
                self._problem(MISSING, f"{self._path} is gone; what it said last stays")
            return
        except (Unusable, OSError) as error:
            self._problem(UNREADABLE, str(error))
            return
        self._take(info)
        if info.problems:
            self._problem(UNEXPECTED, info.problems[0])
        else:
            self._logged = None

    def _take(self, info: TrainingInfo) -> None:
        before, now = self._last, info.reading.status
        ended_before = before is not None and before.reading.status in ENDED
        if now in ENDED and not (ended_before and before is not None and before.duration == info.duration):
            self._observed.durations.observe(info.duration)
        for checkpoint in info.checkpoints:
            if checkpoint.key not in self._checkpoints:
                self._checkpoints.add(checkpoint.key)
                self._observed.sizes.observe(checkpoint.size)
        if info.reading.checkpoints is None and self._checkpoints:
            info = replace(info, reading=replace(info.reading, checkpoints=len(self._checkpoints)))
        self._last = info

    def _with_gpus(self, reading: Reading) -> Reading:
        encoded = [one for member in self._gpus for one, _ in member.ready()]
        if not encoded or reading.status in ENDED:
            return reading
        gpus = Gpus(Samples(encoded, GPU_FAMILIES)).together()
        return replace(
            reading,
            gpu_utilization=gpus.utilization,
            gpu_memory_used=gpus.memory_used,
            gpu_memory_total=gpus.memory_total,
        )

    def _problem(self, reason: str, text: str) -> None:
        self._errors[reason] += 1
        if text != self._logged:
            log.warning("%s", plain(text)[:500])
        self._logged = text
