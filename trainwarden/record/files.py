"""Run record v1: what its files say, for whoever reads them.

Every reader answers in three values: what the file says, `Unreadable` with the reason, or None where there is no file.
It never raises. Records of other tools may hold only the first line of keys in docs/contracts.md; what is absent is
None. All times are Unix seconds.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwarden.record import thresholds
from trainwarden.record.document import Document, FileContent, Unreadable, parse, read_document
from trainwarden.record.folder import CHECKPOINTED, METADATA, PROGRESS, RANKS
from trainwarden.record.thresholds import Thresholds, known_phase

STATUSES = ("pending", "running", "succeeded", "failed", "cancelled")
_OTHER_SPELLINGS = {"completed": "succeeded", "canceled": "cancelled"}


@dataclass(frozen=True)
class Attempt:
    """One entry of `attempts`; `resume_step` is the first step that the attempt reported."""

    attempt: int
    key: str
    start_time: float | None = None
    resume_step: int | None = None


@dataclass(frozen=True)
class Metadata:
    """`metadata.json`. `last_update` says that the process lives, not that it trains."""

    run_id: str | None
    status: str | None
    phase: str | None
    last_update: float | None
    instance_id: str | None
    version: int | None
    attempt: int | None
    attempt_key: str | None
    job_id: str | None
    scheduler: str | None
    attempts: tuple[Attempt, ...]
    start_time: float | None
    attempt_start_time: float | None
    phase_time: float | None
    end_time: float | None
    reason: str | None
    framework: str | None
    model: str | None
    method: str | None
    world_size: int | None
    host: str | None
    pid: int | None
    write_errors: int | None
    thresholds: Thresholds
    problems: tuple[str, ...]
    signals: str | None = None
    log_path: str | None = None
    policy: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that the training reported as saved; `size_bytes` is that of the file or of the whole folder."""

    path: str
    step: int | None = None
    time: float | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Progress:
    """`progress.json`, written only when the training loop moved. `checkpoints` are the last few, newest first."""

    step: int | None
    total_steps: int | None
    loss: float | None
    learning_rate: float | None
    last_updated: float | None
    version: int | None
    attempt: int | None
    attempt_key: str | None
    step_time: float | None
    moved_time: float | None
    high_water: int | None
    steps_completed: int | None
    nonfinite: int | None
    epoch: float | None
    grad_norm: float | None
    tokens_per_second: float | None
    samples_per_second: float | None
    metrics: Mapping[str, Any]
    checkpoint: Checkpoint | None
    checkpoints_saved: int | None
    checkpoints: tuple[Checkpoint, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class RankBeat:
    """`ranks/<rank>.json`: `time` is the liveness of the rank's process, `step` where its loop is, `status` its end."""

    rank: int
    step: int | None
    phase: str | None
    status: str | None
    time: float | None
    host: str | None
    pid: int | None
    attempt_key: str | None
    problems: tuple[str, ...]


def read_metadata(folder: Path) -> Metadata | Unreadable | None:
    """The run's `metadata.json`."""
    document = read_document(folder / METADATA)
    return _metadata(document) if isinstance(document, Document) else document


def read_progress(folder: Path) -> Progress | Unreadable | None:
    """The run's `progress.json`."""
    document = read_document(folder / PROGRESS)
    return _progress(document) if isinstance(document, Document) else document


def parse_metadata(content: FileContent, path: Path) -> Metadata | Unreadable:
    """What a `metadata.json` says that came from elsewhere; `path` is where it belongs."""
    document = parse(content, path)
    return _metadata(document) if isinstance(document, Document) else document


def parse_progress(content: FileContent, path: Path) -> Progress | Unreadable:
    """What a `progress.json` or `checkpoint.json` says that came from elsewhere; `path` is where it belongs."""
    document = parse(content, path)
    return _progress(document) if isinstance(document, Document) else document


def read_checkpointed(folder: Path) -> Progress | Unreadable | None:
    """The run's `checkpoint.json`: its progress as it was when the last checkpoint was recorded."""
    document = read_document(folder / CHECKPOINTED)
    return _progress(document) if isinstance(document, Document) else document


def read_ranks(folder: Path) -> list[RankBeat | Unreadable]:
    """Every rank's own file, by rank, of whichever attempt wrote it last: compare `attempt_key`."""
    try:
        names = os.listdir(folder / RANKS)  # noqa: PTH208  # names only: a thousand ranks need no Path each
    except OSError:
        return []
    ranks = sorted(
        int(stem) for stem, dot, end in (name.partition(".") for name in names) if end == "json" and _is_rank(stem)
    )
    read = (read_rank(folder, rank) for rank in ranks)
    return [beat for beat in read if beat is not None]


def read_rank(folder: Path, rank: int) -> RankBeat | Unreadable | None:
    """One rank's own file."""
    document = read_document(folder / RANKS / f"{rank}.json")
    if not isinstance(document, Document):
        return document
    phase = document.text("phase")
    return RankBeat(
        rank=rank,
        step=document.integer("step"),
        phase=known_phase(phase) if phase else None,
        status=_status(document),
        time=document.time("time"),
        host=document.text("host"),
        pid=document.integer("pid"),
        attempt_key=document.text("attempt_key"),
        problems=tuple(document.problems),
    )


def _is_rank(stem: str) -> bool:
    return stem.isascii() and stem.isdigit() and len(stem) < 8 and str(int(stem)) == stem


def _metadata(document: Document) -> Metadata:
    phase = document.text("phase")
    return Metadata(
        run_id=document.text("run_id"),
        status=_status(document),
        phase=known_phase(phase) if phase else None,
        last_update=document.time("last_update"),
        instance_id=document.text("instance_id"),
        version=document.integer("version"),
        attempt=document.integer("attempt"),
        attempt_key=document.text("attempt_key"),
        job_id=document.text("job_id"),
        scheduler=document.text("scheduler"),
        attempts=tuple(_attempts(document)),
        start_time=document.time("start_time"),
        attempt_start_time=document.time("attempt_start_time"),
        phase_time=document.time("phase_time"),
        end_time=document.time("end_time"),
        reason=document.text("reason"),
        framework=document.text("framework"),
        model=document.text("model"),
        method=document.text("method"),
        world_size=document.integer("world_size"),
        host=document.text("host"),
        pid=document.integer("pid"),
        write_errors=document.integer("write_errors"),
        thresholds=thresholds.read(document.child("thresholds")),
        signals=document.text("signals"),
        log_path=document.text("log_path"),
        policy=document.text("policy"),
        environment=_texts(document.child("environment")),
        problems=tuple(document.problems),
    )


def _texts(document: Document | None) -> dict[str, str]:
    values = document.values if document else {}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _status(document: Document) -> str | None:
    text = document.text("status")
    if text is None:
        return None
    status = _OTHER_SPELLINGS.get(text.strip().lower(), text.strip().lower())
    if status in STATUSES:
        return status
    document.problems.append(f"status: {text[:60]!r} is none of {', '.join(STATUSES)}")
    return None


def _attempts(document: Document) -> list[Attempt]:
    attempts = []
    for entry in document.children("attempts"):
        number, key = entry.integer("attempt"), entry.text("key")
        if number is not None and key is not None:
            attempts.append(Attempt(number, key, entry.time("start_time"), entry.integer("resume_step")))
    return attempts


def _progress(document: Document) -> Progress:
    last = document.child("checkpoint")
    metrics = document.child("metrics")
    return Progress(
        step=document.integer("step"),
        total_steps=document.integer("total_steps"),
        loss=document.number("loss"),
        learning_rate=document.number("learning_rate"),
        last_updated=document.time("last_updated"),
        version=document.integer("version"),
        attempt=document.integer("attempt"),
        attempt_key=document.text("attempt_key"),
        step_time=document.time("step_time"),
        moved_time=document.time("moved_time"),
        high_water=document.integer("high_water"),
        steps_completed=document.integer("steps_completed"),
        nonfinite=document.integer("nonfinite"),
        epoch=document.number("epoch"),
        grad_norm=document.number("grad_norm"),
        tokens_per_second=document.number("tokens_per_second"),
        samples_per_second=document.number("samples_per_second"),
        metrics=metrics.values if metrics else {},
        checkpoint=_checkpoint(last) if last else None,
        checkpoints_saved=last.integer("count") if last else None,
        checkpoints=tuple(found for entry in document.children("checkpoints") if (found := _checkpoint(entry))),
        problems=tuple(document.problems),
    )


def _checkpoint(document: Document) -> Checkpoint | None:
    # As it was written: one that is not UTF-8 must still be found.
    path = document.values.get("path")
    if not isinstance(path, str) or not path:
        return None
    return Checkpoint(path, document.integer("step"), document.time("time"), document.integer("size_bytes"))
