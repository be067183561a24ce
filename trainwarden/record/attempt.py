"""The start of an attempt in a run's record: its number, what it inherits, and what it sets aside."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden.identity import AttemptKey, host_name, process_start_ticks
from trainwarden.record.capture import forget_answers
from trainwarden.record.crash import forget_crashes, record_crash
from trainwarden.record.document import Unreadable
from trainwarden.record.folder import PROGRESS, RESUME
from trainwarden.record.metadata import Attempt, Metadata, read_metadata
from trainwarden.record.progress import Checkpoint, Progress, read_checkpointed, read_progress
from trainwarden.record.sentinels import (
    RestartNotice,
    Sentinel,
    announced_restart,
    current_completion,
    current_error,
)
from trainwarden.record.steps import StepCounter
from trainwarden.record.store import RecordStore

# The whole story of most runs; a run that restarts for ever must not grow its record for ever.
_MAX_ATTEMPTS = 1000

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class LostAttempt:
    """An attempt that ended without a record of its end. `last_update` is its last sign of life, Unix seconds.

    `error` is the message of a launcher, of another rank or of a crash trace.
    """

    key: str | None
    attempt: int | None
    last_update: float | None
    step: int | None
    error: str | None


@dataclass(frozen=True)
class AttemptStart:
    """An attempt as it starts. `attempts` are those before it and itself, last; times are Unix seconds.

    `lost` is the one before, if it ended without a record of its end; `restarted` why it was ended for this one.
    """

    this: Attempt
    attempts: tuple[Attempt, ...]
    start_time: float
    steps: StepCounter
    checkpoints: tuple[Checkpoint, ...]
    checkpoints_saved: int
    lost: LostAttempt | None = None
    restarted: RestartNotice | None = None


def begin_attempt(folder: Path, key: AttemptKey, now: float, environ: Mapping[str, str] = os.environ) -> AttemptStart:
    """Number the attempt `key` in the record of `folder`, and set aside the sentinels of those before it.

    Args:
        folder: of the run.
        key: of the attempt.
        now: Unix seconds.
        environ: read for TRAINWARDEN_ATTEMPT, the number if the record has none before.

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
    lost = _lost_attempt(folder, metadata, past, key)
    RecordStore(folder).set_sentinels_aside(metadata, str(key), begun_before=begun_before)
    forget_crashes(folder, str(key), begun_before=begun_before)
    forget_answers(folder)
    # No rank may obey the choice of an earlier start.
    (folder / RESUME).unlink(missing_ok=True)
    this = same or Attempt(_next_number(metadata, past, environ), str(key), now)
    if this.start_time is None:
        this = this.replace(start_time=now)
    others = tuple(attempt for attempt in known if attempt.key != str(key))
    started = metadata.start_time if isinstance(metadata, Metadata) else None
    return AttemptStart(
        this=this,
        attempts=(*others, this)[-_MAX_ATTEMPTS:],
        start_time=now if started is None else started,
        steps=StepCounter.of_run(past),
        checkpoints=past.known_checkpoints() if past else (),
        checkpoints_saved=(past and past.checkpoints_saved) or 0,
        lost=lost,
        restarted=announced_restart(folder, others[-1].key) if others else None,
    )


def last_progress(folder: Path) -> Progress | None:
    """Return the run's progress; where that cannot be read, as it was when the last checkpoint was recorded."""
    progress = read_progress(folder)
    if isinstance(progress, Progress):
        return progress
    kept = read_checkpointed(folder)
    if isinstance(progress, Unreadable):
        instead = "it is as at its last checkpoint" if isinstance(kept, Progress) else "NO CHECKPOINT IS KNOWN"
        logger.error("the progress of the run cannot be read, %s: %s", instead, progress)
    return kept if isinstance(kept, Progress) else None


def _keep_damaged(folder: Path, now: float) -> None:
    # The file is about to be replaced, and a person may still make something out of it.
    if isinstance(read_progress(folder), Unreadable):
        kept = folder / f"{PROGRESS}.damaged-{int(now)}"
        (folder / PROGRESS).replace(kept)
        logger.error("what could not be read is kept as %s", kept)


def _lost_attempt(folder: Path, metadata: object, past: Progress | None, key: AttemptKey) -> LostAttempt | None:
    if not isinstance(metadata, Metadata) or metadata.status != "running" or metadata.attempt_key in {None, str(key)}:
        return None
    before, start = metadata.attempt_key, metadata.attempt_start_time
    if isinstance(current_completion(folder, before, start), Sentinel):
        return None
    error = current_error(folder, before, start)
    step = past.step if past and past.attempt_key == before else None
    message = error.message if isinstance(error, Sentinel) else None
    return LostAttempt(before, metadata.attempt, metadata.last_update, step, message)


def _only_announced(metadata: Metadata, key: AttemptKey) -> bool:
    """Return whether a launcher, still alive, wrote of this attempt before the first process of the attempt ran."""
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
    given = environ.get("TRAINWARDEN_ATTEMPT", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
