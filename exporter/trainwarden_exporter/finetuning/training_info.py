"""The values in a file about a training, whichever program wrote it. Pure: no clock, no file system.

Such files agree on little: a `training_info.json` is written by a script at its end, a `trainer_state.json` by the
trainer of Hugging Face at each checkpoint, a `trainer_log.jsonl` line by line. Each key is looked for by all its names,
at the top, in the objects inside that usually hold it, and in the history of what was logged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwarden_exporter.finetuning.job import ENDED, RUNNING, SUCCEEDED, JobValues, percent, status_number

Values = Mapping[str, Any]

# The keys of each value, the most specific first.
KEYS = {
    "status": ("status", "job_status", "training_status", "state"),
    "epoch": ("epoch", "current_epoch", "epochs_completed"),
    "total_epochs": ("num_train_epochs", "total_epochs", "num_epochs", "max_epochs", "epochs"),
    "step": ("global_step", "current_step", "current_steps", "step", "total_steps_completed"),
    "total_steps": ("max_steps", "total_steps", "max_train_steps", "num_training_steps"),
    "progress": ("progress_percent", "training_progress", "percentage", "progress"),
    "loss": ("loss", "train_loss", "training_loss", "current_loss", "final_loss"),
    "learning_rate": ("learning_rate", "lr", "current_lr"),
    "samples_per_second": ("samples_per_second", "train_samples_per_second"),
    "tokens_per_second": ("tokens_per_second", "train_tokens_per_second", "tokens_per_sec"),
    "duration": ("train_runtime", "duration_seconds", "training_time_seconds", "total_time_seconds", "runtime_seconds"),
    "checkpoints": ("checkpoints_saved", "checkpoint_count", "num_checkpoints", "total_checkpoints"),
    "gpu_utilization": ("gpu_utilization_percent", "gpu_utilization"),
    "gpu_memory_used": ("gpu_memory_used_bytes", "gpu_memory_used"),
    "gpu_memory_total": ("gpu_memory_total_bytes", "gpu_memory_total"),
}
FINISHED = ("training_completed", "completed", "finished", "is_finished")
# Nested objects with current values, and those with settings.
SECTIONS = ("progress", "training_progress", "training_state", "trainer_state", "state", "metrics", "training_metrics",
            "training", "results", "train_results", "final_results", "train_metrics", "gpu")  # fmt: skip
SETTINGS = ("training_config", "training_args", "config", "hyperparameters", "arguments", "args")
HISTORIES = ("log_history", "training_history", "history", "logs")
# Keys of the loss of a training, not of an evaluation.
LOSSES = ("loss", "train_loss", "training_loss")
_SIZES = ("size_bytes", "checkpoint_size_bytes", "checkpoint_size", "size")
# For these the last line of a history is newer than the top of the file.
_OF_HISTORY = frozenset({"loss", "learning_rate", "samples_per_second", "tokens_per_second"})


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that the file names; `key` identifies it. Size in bytes."""

    key: str
    size: float | None = None


@dataclass(frozen=True)
class TrainingInfo:
    """The content of the file. `duration` is that of the whole training, in seconds; `problems` describe bad values."""

    values: JobValues
    duration: float | None = None
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class _InfoObjects:
    """The objects of one file, by purpose."""

    now: list[Values]
    history: Values
    settings: list[Values]
    has_summary: bool = False
    problems: list[str] = field(default_factory=list)

    def number(self, name: str) -> float | None:
        """Return the first number under one of the keys of `name`."""
        order = [self.history, *self.now] if name in _OF_HISTORY else [*self.now, self.history]
        if name in ("total_steps", "total_epochs", "learning_rate"):
            order += self.settings
        for values in order:
            for key in KEYS[name]:
                value = values.get(key)
                if value is None or isinstance(value, (Mapping, list)):
                    continue
                found = number(value)
                if found is not None:
                    return found
                if not isinstance(value, float):  # NaN is a number, and no value to show
                    self.problems.append(f"{key}: {str(value)[:60]!r} is not a number")
        return None


def parse_training_info(document: Values) -> TrainingInfo:
    """Return the content of a JSON object; a bad value counts as absent."""
    sources = _sources(document)
    step, total = sources.number("step"), sources.number("total_steps")
    epoch = sources.number("epoch")
    saved = _checkpoints(document)
    status = _status(sources)
    stated = sources.number("progress")
    # A trainer that counts epochs, not steps, writes -1.
    done = percent(step, total) if total is not None and total > 0 else None
    if done is None:
        done = percent(stated, 100) if stated is not None else percent(epoch, sources.number("total_epochs"))
    values = JobValues(
        status=status,
        epoch=epoch,
        step=step,
        progress=done,
        loss=sources.number("loss"),
        learning_rate=sources.number("learning_rate"),
        samples_per_second=sources.number("samples_per_second"),
        tokens_per_second=sources.number("tokens_per_second"),
        gpu_utilization=sources.number("gpu_utilization"),
        gpu_memory_used=sources.number("gpu_memory_used"),
        gpu_memory_total=sources.number("gpu_memory_total"),
        checkpoints=_count(document, sources),
    )
    duration = sources.number("duration") if status in ENDED else None
    return TrainingInfo(values, duration, saved, tuple(sources.problems))


def number(value: object) -> float | None:
    """Return a finite number, also one that was written as text; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def loss_history(training_info: Values) -> list[float]:
    """Return the losses of the training as they were logged, in order; those of evaluations are left out."""
    sections = [training_info, *(training_info[key] for key in SECTIONS if isinstance(training_info.get(key), dict))]
    found: list[float] = []
    for values in sections:
        for key in ("loss_history", "losses", "train_losses"):
            listed = values.get(key)
            found += numbers(listed if isinstance(listed, list) else ())
        for key in HISTORIES:
            entries = values.get(key)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, Mapping) and "train_runtime" not in entry:
                    stated = next((entry[name] for name in LOSSES if name in entry), None)
                    found += numbers([] if stated is None else [stated])
        if found:
            return found
    return found


def numbers(values: Sequence[Any]) -> list[float]:
    """Return those of the values that are numbers, NaN and infinity included."""
    found = []
    for value in values:
        try:
            found.append(float(value))
        except (TypeError, ValueError):  # noqa: PERF203  # at most a few thousand
            continue
    return found


def _sources(document: Values) -> _InfoObjects:
    now = [document, *(document[key] for key in SECTIONS if isinstance(document.get(key), Mapping))]
    settings = [document[key] for key in SETTINGS if isinstance(document.get(key), Mapping)]
    history: dict[str, Any] = {}
    has_summary = any(_sums_up(values) for values in now)
    for values in now:
        for key in HISTORIES:
            entries = values.get(key)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, Mapping):
                    history.update((name, value) for name, value in entry.items() if value is not None)
                    if not _is_evaluation(entry):
                        # Training that goes on after an earlier end logs further losses.
                        has_summary = _sums_up(entry) and "train_loss" in entry
    return _InfoObjects(now, history, settings, has_summary)


def _sums_up(values: Values) -> bool:
    """Return whether these values are of a whole training.

    Trainer writes `train_runtime` beside each loss as well where it counts tokens.
    """
    return "train_runtime" in values and ("train_loss" in values or "loss" not in values)


def _is_evaluation(entry: Values) -> bool:
    return any(name.startswith(("eval_", "test_", "predict_")) for name in entry) and "train_runtime" not in entry


def _status(sources: _InfoObjects) -> int:
    """Return the stated status; without one, succeeded if the file sums up a whole training, else running."""
    for values in sources.now:
        for key in KEYS["status"]:
            name = values.get(key)
            if isinstance(name, str):
                found = status_number(name)
                if found is not None:
                    return found
                sources.problems.append(f"{key}: {name[:60]!r} is no status")
        if any(values.get(key) is True for key in FINISHED):
            return SUCCEEDED
    return SUCCEEDED if sources.has_summary else RUNNING


def _count(document: Values, sources: _InfoObjects) -> float | None:
    stated = document.get("checkpoints")
    if isinstance(stated, Mapping):
        stated = stated.get("count")
    last = document.get("checkpoint")
    nested = last.get("count") if isinstance(last, Mapping) else None
    counts = (sources.number("checkpoints"), number(stated), number(nested))
    return next((count for count in counts if count is not None), None)


def _checkpoints(document: Values) -> tuple[SavedCheckpoint, ...]:
    listed = document.get("checkpoints")
    entries = list(listed) if isinstance(listed, Sequence) and not isinstance(listed, str) else []
    entries.append(document.get("checkpoint"))
    found: dict[str, SavedCheckpoint] = {}
    for entry in entries:
        if isinstance(entry, str) and entry:
            found.setdefault(entry, SavedCheckpoint(entry))
        elif isinstance(entry, Mapping):
            key = "@".join(str(entry[name]) for name in ("path", "name", "step", "global_step") if name in entry)
            if key:
                size = next((size for name in _SIZES if (size := number(entry.get(name))) is not None), None)
                found.setdefault(key, SavedCheckpoint(key, size))
    return tuple(found.values())
