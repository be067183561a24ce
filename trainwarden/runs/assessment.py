"""How a run is, from its record alone: two heartbeats and how the attempt ended.

The states are those of the S3 heartbeat monitor: RUNNING until SUCCEEDED, FAILED or TIMED_OUT, and WARNING while one of
the two heartbeats is stale. PENDING, CANCELLED and UNKNOWN are what a record can show beyond them.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.classify import classify_message
from trainwarden.failures.out_of_memory import suggestion
from trainwarden.identity import host_name, process_lives
from trainwarden.record.clock import to_iso
from trainwarden.record.document import Unreadable, read_file
from trainwarden.record.folder import COMPLETE, ERROR, LOG, METADATA, PROGRESS
from trainwarden.record.snapshot import Snapshot, read_snapshot
from trainwarden.record.thresholds import DEFAULT_STALE_SECONDS, Thresholds
from trainwarden.redaction import label_text, name_text
from trainwarden.runs.journal import read_events
from trainwarden.runs.places import last_log_line, raw_phase
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.sentinels import Sentinel
    from trainwarden.taxonomy import Failure

RUNNING, PENDING, SUCCEEDED, CANCELLED = "RUNNING", "PENDING", "SUCCEEDED", "CANCELLED"
FAILED, TIMED_OUT, WARNING, UNKNOWN = "FAILED", "TIMED_OUT", "WARNING", "UNKNOWN"
BAD = frozenset((FAILED, TIMED_OUT, WARNING))
ENDED = frozenset((SUCCEEDED, FAILED, CANCELLED))

_MAX_TEXT = 500
_LOOK = "SSH to instance and check: training.log, nvidia-smi, disk space"
_OPEN = "Check who may read the record, and who looks at it"
_START = "Check that the job started, and that it may write its record: the launcher's log, S3 write permissions"
# In the words that existing alerts have.
_ACTIONS = {"cuda_oom": "Reduce batch size or sequence length"}
_LIVE = (None, "pending", "running")
# Ahead of this clock by more than this, a stated time is an error.
_CLOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Assessment:
    """How a run is at one moment. Times are Unix seconds, ages seconds, texts one line without secrets.

    Attributes:
        status: RUNNING, PENDING, SUCCEEDED, FAILED, CANCELLED, TIMED_OUT, WARNING or UNKNOWN.
        reason: for it; empty while the run is well.
        action: what a person should do; empty where there is nothing to do.
        phase: as the writer of the record spells it.
        duration_seconds: from the run's start to its end, or to its last sign of life.
        stall_seconds: how long the step has stood still beyond its budget; None where it does not.
    """

    run_id: str
    status: str
    reason: str
    action: str
    time: float
    stale_seconds: float
    phase: str | None = None
    instance_id: str | None = None
    attempt: int | None = None
    attempt_key: str | None = None
    metadata_age: float | None = None
    progress_age: float | None = None
    duration_seconds: float | None = None
    stall_seconds: float | None = None
    failure: str | None = None
    error_type: str | None = None
    last_log: str | None = None
    notes: tuple[str, ...] = ()
    metadata: Metadata | None = None
    progress: Progress | None = None
    ranks: tuple[RankBeat, ...] = ()

    @property
    def is_bad(self) -> bool:
        """Whether a person should look."""
        return self.status in BAD or self.stall_seconds is not None

    @property
    def last_sign(self) -> float | None:
        """When the run last gave a sign of life, Unix seconds."""
        ages = [age for age in (self.metadata_age, self.progress_age) if age is not None]
        return self.time - min(ages) if ages else None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON; null is unknown."""
        metadata, progress = self.metadata, self.progress
        checkpoint = progress.checkpoint if progress else None
        saved = checkpoint.time if checkpoint else None
        return {
            "run_id": self.run_id,
            "status": self.status,
            "reason": self.reason or None,
            "action": self.action or None,
            "time": to_iso(self.time),
            "phase": self.phase,
            "attempt": self.attempt,
            "attempt_key": self.attempt_key,
            "instance_id": self.instance_id,
            "host": metadata and metadata.host,
            "scheduler": metadata and metadata.scheduler,
            "job_id": metadata and metadata.job_id,
            "model": metadata and metadata.model,
            "world_size": metadata and metadata.world_size,
            "start_time": _iso(metadata.start_time if metadata else None),
            "end_time": _iso(metadata.end_time if metadata else None),
            "duration_seconds": _rounded(self.duration_seconds),
            "heartbeats": {
                "metadata_age_seconds": _rounded(self.metadata_age),
                "progress_age_seconds": _rounded(self.progress_age),
                "stale_seconds": self.stale_seconds,
            },
            "step": progress and progress.step,
            "total_steps": progress and progress.total_steps,
            "epoch": progress and progress.epoch,
            "loss": progress and progress.loss,
            "learning_rate": progress and progress.learning_rate,
            "grad_norm": progress and progress.grad_norm,
            "tokens_per_second": progress and progress.tokens_per_second,
            "samples_per_second": progress and progress.samples_per_second,
            "eta_seconds": _rounded(eta_seconds(self)),
            "stalled_seconds": _rounded(self.stall_seconds),
            "checkpoint": checkpoint
            and {
                "path": checkpoint.path,
                "step": checkpoint.step,
                "age_seconds": _rounded(None if saved is None else self.time - saved),
            },
            "ranks": ranks_document(self),
            "gpus": gpus_document(self),
            "failure": self.failure,
            "error_type": self.error_type,
            "last_log": self.last_log,
            "notes": list(self.notes),
        }


def assess(
    folder: Path, now: float, stale_seconds: float | None = None, *, fetched: bool = False, run_id: str | None = None
) -> Assessment:
    """Return how the run is whose record is in `folder`. Never raises.

    Args:
        folder: of the record.
        now: Unix seconds.
        stale_seconds: a heartbeat older than this is stale; what the record states if None, else ten minutes.
        fetched: whether the folder is a copy from elsewhere, in which the ids of processes mean nothing.
        run_id: the folder's name if None.
    """
    snapshot = read_snapshot(folder)
    metadata, progress = snapshot.metadata, _own_progress(snapshot)
    thresholds = metadata.thresholds if metadata else Thresholds()
    stale = stale_seconds or thresholds.stale_seconds or DEFAULT_STALE_SECONDS
    ages = (
        _age(folder / METADATA, metadata.last_update if metadata else None, now),
        _age(folder / PROGRESS, progress.last_updated if progress else None, now)
        if progress or snapshot.progress is None
        else None,
    )
    phase = (metadata and metadata.phase) or "train"
    inferred = bool(metadata and metadata.phase_source)
    budget = thresholds.stall_budget(phase, progress.step_durations if progress else None, inferred=inferred)
    budget = math.inf if budget is None else budget
    # A loop that evaluates or saves makes no steps, for as long as its phase may last.
    limits = stale, stale if phase == "train" else max(stale, budget)
    failure = _failure(snapshot.error, metadata) if snapshot.state == "failed" else None
    status, reason, action = _status(folder, snapshot, ages, limits, failure, now)
    if status == RUNNING and not fetched and metadata and is_gone(metadata):
        status, reason, action = WARNING, f"process {metadata.pid} of the run is gone, and left no end", _LOOK
    log = last_log_line(folder)
    stood = _stood_still(metadata, progress, now) if status in (RUNNING, WARNING) else None
    return Assessment(
        run_id=run_id or snapshot.run_id,
        status=status,
        reason=label_text(reason, _MAX_TEXT),
        action=action,
        time=now,
        stale_seconds=stale,
        phase=_text(raw_phase(folder), 40),
        instance_id=_name(metadata.instance_id or metadata.host, 128) if metadata else None,
        attempt=metadata.attempt if metadata else None,
        attempt_key=_text(metadata.attempt_key, 200) if metadata else None,
        metadata_age=ages[0],
        progress_age=ages[1],
        duration_seconds=_duration(metadata, ages, now),
        stall_seconds=stood if stood is not None and stood > budget else None,
        failure=failure.slug if failure else None,
        error_type=failure.error_type if failure else None,
        last_log=_text(log, _MAX_TEXT),
        notes=tuple(label_text(str(each), _MAX_TEXT) for each in snapshot.unreadable),
        metadata=metadata,
        progress=progress,
        ranks=snapshot.ranks,
    )


def eta_seconds(assessment: Assessment) -> float | None:
    """Return how long the steps that are left take at the pace of those since the attempt began; None if unknown.

    Of a run that stands still it is unknown.
    """
    metadata, progress = assessment.metadata, assessment.progress
    is_moving = assessment.status == RUNNING and assessment.stall_seconds is None
    if not is_moving or not metadata or not progress or progress.total_steps is None:
        return None
    start = metadata.attempt_start_time or metadata.start_time
    first = next((each.resume_step for each in metadata.attempts if each.key == metadata.attempt_key), None) or 0
    moved = progress.step_time or progress.last_updated
    if progress.step is None or start is None or moved is None or progress.step <= first or moved <= start:
        return None
    return max(0.0, (progress.total_steps - progress.step) * (moved - start) / (progress.step - first))


def ranks_document(assessment: Assessment) -> dict[str, Any] | None:
    """Return how many ranks there are, on how many hosts, which lags behind and which are silent; None without any."""
    ranks = assessment.ranks
    if not ranks:
        return None
    stepping = [(rank.step, rank.rank, rank) for rank in ranks if rank.step is not None and rank.status in _LIVE]
    last = min(stepping)[2] if stepping and min(stepping)[0] < max(stepping)[0] else None
    silent = [
        rank.rank
        for rank in ranks
        if rank.status in _LIVE and rank.time is not None and assessment.time - rank.time > assessment.stale_seconds
    ]
    return {
        "count": len(ranks),
        "hosts": len({rank.host for rank in ranks if rank.host}) or None,
        "behind": last and {"rank": last.rank, "step": last.step, "host": _name(last.host, 128)},
        "silent": sorted(silent),
    }


def gpus_document(assessment: Assessment) -> dict[str, Any] | None:
    """Return which GPUs rank 0 sees, and those of ranks that other processes used before training; None if unknown."""
    metadata = assessment.metadata
    taken = [rank for rank in assessment.ranks if rank.gpu_taken_bytes and rank.attempt_key == assessment.attempt_key]
    if not taken and (metadata is None or metadata.gpu_count is None):
        return None
    return {
        "type": _text(metadata.gpu_type if metadata else None, 128),
        "count": metadata and metadata.gpu_count,
        "taken": [
            {"rank": rank.rank, "host": _name(rank.host, 128), "gpu": rank.gpu, "bytes": rank.gpu_taken_bytes}
            for rank in taken
        ],
    }


def _action(failure: Failure, message: str, folder: Path) -> str:
    """Return what a person should change after a failure, with the numbers that are known."""
    found = suggestion(failure, message, _batch_size(folder))
    return _ACTIONS.get(failure.slug, found) if found == failure.hint else found


def _batch_size(folder: Path) -> float | None:
    """Return the batch size that the script noted last with `note("training_configuration", batch_size=…)`."""
    noted = [event.data.number("batch_size") for event in read_events(folder, ("training_configuration",))]
    return next((size for size in reversed(noted) if size is not None), None)


def _status(
    folder: Path,
    snapshot: Snapshot,
    ages: tuple[float | None, float | None],
    limits: tuple[float, float],
    failure: Failure | None,
    now: float,
) -> tuple[str, str, str]:
    """Return status, reason and action."""
    metadata = snapshot.metadata
    if snapshot.state == "failed":
        told = snapshot.error.told if snapshot.error else ""
        message = told or (metadata and metadata.reason) or "no reason recorded"
        details = "Check the error's details in _error" if told else f"Read the end of {LOG}: no error is recorded"
        return FAILED, f"Error: {message}", _action(failure, message, folder) if failure else details
    if snapshot.state == "succeeded":
        return SUCCEEDED, _own_reason(metadata) or "Training complete", ""
    if snapshot.state == "cancelled":
        return CANCELLED, (metadata and metadata.reason) or "cancelled", ""
    closed = undecided(snapshot)
    if closed is not None:
        return UNKNOWN, f"Cannot be read: {closed}", _OPEN
    stale = [age > limit for age, limit in zip(ages, limits, strict=True) if age is not None]
    if not stale:
        newest = _newest_file(folder)
        if newest is not None and now - newest <= limits[0]:
            return PENDING, "No heartbeat files yet", ""
        return TIMED_OUT, f"No heartbeat files: never started (>{_minutes(limits[0])})", _START
    if all(stale):
        if len(stale) == 2:
            return TIMED_OUT, f"Both heartbeats stale (>{_minutes(limits[0])})", _LOOK
        only = METADATA if ages[0] is not None else PROGRESS
        return TIMED_OUT, f"Heartbeat stale (>{_minutes(limits[0])}): {only}, the only one", _LOOK
    if any(stale):
        if ages[1] is not None and ages[1] > limits[1]:
            return (
                WARNING,
                f"Progress heartbeat stale (>{_minutes(limits[1])}): the process lives, its loop does not move",
                "Check the training's output and nvidia-smi: a collective may hang",
            )
        return (
            WARNING,
            f"Metadata heartbeat stale (>{_minutes(limits[0])}): the loop moves, the record is not kept",
            "Check whatever writes metadata.json, and its permissions",
        )
    return (PENDING if snapshot.state == "pending" else RUNNING), "", ""


def undecided(snapshot: Snapshot) -> Unreadable | None:
    """Return the file without which the status of a run is not known; None where nothing is missing, or it has ended.

    A heartbeat that was read and is no JSON is none of them: its file has a time.
    """
    if snapshot.state in ("failed", "succeeded", "cancelled"):
        return None
    heartbeats, sentinels = {METADATA, PROGRESS}, {ERROR, COMPLETE}
    for each in snapshot.unreadable:
        name = os.path.relpath(each.path, snapshot.folder)
        if name in sentinels or (name in heartbeats and isinstance(read_file(each.path), Unreadable)):
            return each
    return None


def _own_reason(metadata: Metadata | None) -> str | None:
    """Return the reason of the end that the record states: a completed run may have stopped before its last step."""
    return metadata.reason if metadata and metadata.status == "succeeded" else None


def _own_progress(snapshot: Snapshot) -> Progress | None:
    """Return the progress, unless it is of an earlier attempt."""
    progress, metadata = snapshot.progress, snapshot.metadata
    if progress is None or metadata is None or progress.attempt_key is None or metadata.attempt_key is None:
        return progress
    return progress if progress.attempt_key == metadata.attempt_key else None


def _age(path: Path, stated: float | None, now: float) -> float | None:
    """Return how old a heartbeat is: as it states, or as its file; None where there is no file."""
    try:
        modified = path.lstat().st_mtime
    except OSError:
        return None
    time = modified if stated is None or stated > now + _CLOCK_SECONDS else stated
    return max(0.0, now - time)


def _newest_file(folder: Path) -> float | None:
    times = []
    for path in (folder, *folder.glob("*"), *folder.glob("logs/*")):
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max(times, default=None)


def _failure(error: Sentinel | None, metadata: Metadata | None) -> Failure | None:
    if error and error.failure in FAILURES:
        return FAILURES[str(error.failure)]
    message = error.message if error else (metadata.reason if metadata else None) or ""
    trace = (error.traceback if error else None) or ""
    return classify_message(f"{trace}\n{message}".strip()) or classify_message(message)


def _duration(metadata: Metadata | None, ages: tuple[float | None, float | None], now: float) -> float | None:
    known = [age for age in ages if age is not None]
    start = (metadata.start_time or metadata.attempt_start_time) if metadata else None
    if metadata is None or start is None or not known:
        return None
    end = metadata.end_time if metadata.end_time is not None and not metadata.is_live else now - min(known)
    return max(0.0, end - start)


def _stood_still(metadata: Metadata | None, progress: Progress | None, now: float) -> float | None:
    """Return for how long the run has made no step and begun no phase, as TrainRunStalled counts it."""
    moves = [progress.moved_time or progress.step_time] if progress else []
    moves += [metadata.phase_time, metadata.attempt_start_time] if metadata else []
    known = [moved for moved in moves if moved is not None]
    return max(0.0, now - max(known)) if known else None


def is_gone(metadata: Metadata) -> bool:
    """Return whether the process of a run was one of this machine, and does not live any more."""
    # Of a container's processes, which has another name, nothing is known here.
    return metadata.host == host_name() and metadata.pid is not None and not process_lives(metadata.pid)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g}m" if seconds >= 60 else f"{seconds:g}s"


def _text(text: str | None, limit: int) -> str | None:
    return label_text(text, limit) if text else None


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else to_iso(seconds)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _name(text: str | None, limit: int) -> str | None:
    return name_text(text, limit) if text else None
