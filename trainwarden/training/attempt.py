"""Beginning an attempt in a run's record: its number, what it inherits, and what it sets aside."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden.identity import AttemptKey, host_name, process_start_ticks
from trainwarden.record.crash import forget_crashes, record_crash
from trainwarden.record.document import Unreadable
from trainwarden.record.files import (
    Attempt,
    Checkpoint,
    Metadata,
    Progress,
    read_checkpointed,
    read_metadata,
    read_progress,
)
from trainwarden.record.folder import PROGRESS
from trainwarden.record.sentinels import Sentinel, current_completion, current_error, set_aside
from trainwarden.training.loop import CarriedCounters

# Enough to see a run's whole story; one that restarts for ever must not grow its record for ever.
_MAX_ATTEMPTS = 1000

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class Lost:
    """An attempt that never said its end. `last_update` is its last sign of life, Unix seconds.

    `error` is what a launcher, another rank or a trace of a crash says of it.
    """

    key: str | None
    attempt: int | None
    last_update: float | None
    step: int | None
    error: str | None


@dataclass(frozen=True)
class Beginning:
    """An attempt as it begins. `attempts` are those before it and itself, last; times are Unix seconds.

    `lost` is the one before, if it never said its end.
    """

    this: Attempt
    attempts: tuple[Attempt, ...]
    start_time: float
    carried: CarriedCounters
    checkpoints: tuple[Checkpoint, ...]
    checkpoints_saved: int
    lost: Lost | None = None


def begin(folder: Path, key: AttemptKey, now: float, environ: Mapping[str, str] = os.environ) -> Beginning:
    """Number the attempt `key` in the record of `folder`, and set aside the sentinels of those before it.

    Raises:
        OSError: the folder cannot be written.
    """
    metadata, past = read_metadata(folder), last_progress(folder)
    known = metadata.attempts if isinstance(metadata, Metadata) else ()
    _keep_damaged(folder, now)
    same = next((attempt for attempt in known if attempt.key == str(key)), None)
    announced = isinstance(metadata, Metadata) and _only_announced(metadata, key)
    begun_before = same is not None and not announced
    if isinstance(metadata, Metadata) and metadata.attempt_key != str(key):
        record_crash(folder, metadata)
    lost = _lost(folder, metadata, past, key)
    set_aside(folder, metadata, str(key), begun_before=begun_before)
    forget_crashes(folder, str(key), begun_before=begun_before)
    this = same or Attempt(_next_number(metadata, past, environ), str(key), now)
    if this.start_time is None:
        this = replace(this, start_time=now)
    others = tuple(attempt for attempt in known if attempt.key != str(key))
    started = metadata.start_time if isinstance(metadata, Metadata) else None
    return Beginning(
        this=this,
        attempts=(*others, this)[-_MAX_ATTEMPTS:],
        start_time=now if started is None else started,
        carried=_carried(past),
        checkpoints=saved_checkpoints(past),
        checkpoints_saved=(past and past.checkpoints_saved) or 0,
        lost=lost,
    )


def last_progress(folder: Path) -> Progress | None:
    """What is known of the run's progress; where that cannot be read, what was when the last checkpoint was saved."""
    progress = read_progress(folder)
    if isinstance(progress, Progress):
        return progress
    kept = read_checkpointed(folder)
    if isinstance(progress, Unreadable):
        instead = "it is as at its last checkpoint" if isinstance(kept, Progress) else "NO CHECKPOINT IS KNOWN"
        logger.error("the progress of the run cannot be read, %s: %s", instead, progress)
    return kept if isinstance(kept, Progress) else None


def saved_checkpoints(progress: Progress | None) -> tuple[Checkpoint, ...]:
    """The checkpoints that the record knows, newest first."""
    if progress is None:
        return ()
    last = (progress.checkpoint,) if progress.checkpoint else ()
    return last + tuple(one for one in progress.checkpoints if one not in last)


def _keep_damaged(folder: Path, now: float) -> None:
    # It is about to be written anew, and may hold what a person can still make out.
    if isinstance(read_progress(folder), Unreadable):
        kept = folder / f"{PROGRESS}.damaged-{int(now)}"
        (folder / PROGRESS).replace(kept)
        logger.error("what could not be read is kept as %s", kept)


def _lost(folder: Path, metadata: object, past: Progress | None, key: AttemptKey) -> Lost | None:
    if not isinstance(metadata, Metadata) or metadata.status != "running" or metadata.attempt_key in {None, str(key)}:
        return None
    before, start = metadata.attempt_key, metadata.attempt_start_time
    if isinstance(current_completion(folder, before, start), Sentinel):
        return None
    error = current_error(folder, before, start)
    step = past.step if past and past.attempt_key == before else None
    message = error.message if isinstance(error, Sentinel) else None
    return Lost(before, metadata.attempt, metadata.last_update, step, message)


def _only_announced(metadata: Metadata, key: AttemptKey) -> bool:
    """Whether a launcher, which lives on beside us, wrote of this attempt before its first process was there."""
    if metadata.attempt_key != str(key) or metadata.end_time is not None:
        return False
    writer_lives = metadata.host == host_name() and metadata.pid is not None and process_start_ticks(metadata.pid)
    return metadata.status == "pending" or (bool(writer_lives) and metadata.pid != os.getpid())


def _next_number(metadata: object, progress: Progress | None, environ: Mapping[str, str]) -> int:
    numbers = []
    if isinstance(metadata, Metadata):
        numbers = [attempt.attempt for attempt in metadata.attempts]
        numbers += [] if metadata.attempt is None else [metadata.attempt]
    if progress is not None and progress.attempt is not None:
        numbers.append(progress.attempt)
    if numbers:
        return max(numbers) + 1
    told = environ.get("TRAINWARDEN_ATTEMPT", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 10 else 0


def _carried(progress: Progress | None) -> CarriedCounters:
    if progress is None:
        return CarriedCounters()
    high_water = progress.high_water if progress.high_water is not None else progress.step
    return CarriedCounters(high_water, progress.steps_completed or 0, progress.nonfinite or 0)
