"""What is true of one run, out of what its files say. Pure: no clock, no file system. Times are Unix seconds."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwarden.classify import classify_message
from trainwarden.record.sentinels import Sentinel, run_state
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.thresholds import Thresholds

KEPT_SECONDS = 24 * 3600.0
# A time further ahead of this host's clock is no skew but nonsense, and would keep a dead record alive for years.
AHEAD_SECONDS = 24 * 3600.0
ENDED = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class RunRecord:
    """The files of one run as they were read.

    `metadata` and `progress` are None where missing or unreadable; `has_metadata` and `has_progress` tell which.
    `node_only`: the folder holds ranks and no more, as on a node beside that of rank 0. `modified`: its last change.
    `from_logs`: nothing is recorded, and a log tells of steps.
    """

    run_id: str
    modified: float
    thresholds: Thresholds
    has_metadata: bool = False
    has_progress: bool = False
    node_only: bool = False
    from_logs: bool = False
    metadata: Metadata | None = None
    progress: Progress | None = None
    error: Sentinel | None = None
    completion: Sentinel | None = None
    ranks: tuple[RankBeat, ...] = ()

    @functools.cached_property
    def state(self) -> str | None:
        """The run's state; None where nobody says."""
        state = run_state(self.metadata, self.error, self.completion)
        if state is None and not (self.has_metadata or self.has_progress or self.node_only or self.from_logs):
            return "pending"
        return state

    @property
    def attempt_key(self) -> str | None:
        """The key of the attempt that owns the record."""
        return self.metadata.attempt_key if self.metadata else None

    @property
    def attempt_start(self) -> float | None:
        """When the attempt started; one that waits for its first heartbeat has waited since its folder changed."""
        stated = (self.metadata.attempt_start_time or self.metadata.start_time) if self.metadata else None
        return self.modified if stated is None and self.state == "pending" else stated

    @property
    def end(self) -> float | None:
        """When the attempt ended; None while it runs."""
        if self.state not in ENDED:
            return None
        sentinel = self.error or self.completion
        stated = self.metadata.end_time if self.metadata else None
        return sentinel.time if stated is None and sentinel else stated

    @functools.cached_property
    def current_progress(self) -> Progress | None:
        """The progress, unless an older attempt left it."""
        if self.progress and self.attempt_key and self.progress.attempt_key not in (None, self.attempt_key):
            return None
        return self.progress

    @property
    def current_ranks(self) -> Iterator[RankBeat]:
        """The ranks of the attempt that owns the record; of the newest one where the record does not say."""
        key = self.attempt_key
        if key is None and self.ranks:
            key = max(self.ranks, key=lambda beat: beat.time or 0.0).attempt_key
        return (beat for beat in self.ranks if beat.attempt_key in (None, key))


@dataclass(frozen=True)
class Advance:
    """The highest step that was seen of an attempt and since when it is known, and the same of its last step."""

    attempt_key: str | None
    step: int
    time: float
    last_step: int
    moved_time: float


def advance(before: Advance | None, record: RunRecord, now: float) -> Advance | None:
    """Return the advance after one more look at the record.

    For records that do not say when their step last advanced or changed. A monitor may write the same step for ever, so
    neither the file's time nor its `last_updated` counts once a step has been seen; at first sight it bounds the time.
    """
    progress = record.current_progress
    if progress is None or progress.step is None:
        return before
    key = progress.attempt_key or record.attempt_key
    # Without a key a step that goes back is the only sign of a restart.
    restarted = before is not None and key is None and progress.step < before.step
    if before is None or before.attempt_key != key or restarted:
        updated = believed(progress.last_updated, now)
        since = now if updated is None else min(now, updated)
        return Advance(key, progress.step, since, progress.step, since)
    if progress.step > before.step:
        return Advance(key, progress.step, now, progress.step, now)
    return before if progress.step == before.last_step else replace(before, last_step=progress.step, moved_time=now)


@dataclass(frozen=True)
class Verdict:
    """Which failure ended an attempt; empty where unknown."""

    attempt: str
    error_type: str
    failure: str
    subsystem: str
    severity: str
    message: str
    hint: str
    time: float | None


def verdict(record: RunRecord) -> Verdict:
    """Return the verdict on a failed attempt: what its sentinel states, completed from the taxonomy."""
    reason = (record.metadata.reason if record.metadata else None) or ""
    said = record.error or Sentinel(time=0.0, message=reason)
    known = FAILURES.get(said.failure or "") or classify_message(said.message)
    attempt = record.metadata.attempt if record.metadata and record.metadata.attempt is not None else said.attempt
    return Verdict(
        attempt="" if attempt is None else str(attempt),
        error_type=said.error_type or (known.error_type if known else ""),
        failure=said.failure or (known.slug if known else ""),
        subsystem=said.subsystem or (known.subsystem if known else ""),
        severity=said.severity or (known.severity if known else ""),
        message=said.message,
        hint=said.hint or (known.hint if known else ""),
        time=record.error.time if record.error else record.end,
    )


def last_sign(record: RunRecord, now: float) -> float:
    """Return the last sign of life; of a record that states no time, its last change."""
    metadata, progress = record.metadata, record.progress
    stated = [beat.time for beat in record.ranks]
    stated += [sentinel.time for sentinel in (record.error, record.completion) if sentinel]
    if metadata:
        stated += [metadata.last_update, metadata.end_time, metadata.attempt_start_time, metadata.start_time]
    if progress:
        stated += [progress.last_updated, progress.step_time]
    signs = [time for time in stated if believed(time, now) is not None and time is not None]
    return max(signs, default=record.modified)


@dataclass(frozen=True)
class Steps:
    """When an attempt's step last passed its own high-water mark, and when it last changed at all."""

    advanced: float | None
    changed: float | None


def is_quiet(record: RunRecord, step_time: float | None, now: float) -> bool:
    """Tell whether a running attempt has used up half of one of its thresholds: then its last words are of interest."""
    if record.state != "running" or record.metadata is None:
        return False
    metadata, limits = record.metadata, record.metadata.thresholds
    beats = [time for time in (metadata.last_update, step_time) if time is not None]
    moves = [time for time in (step_time, metadata.phase_time, record.attempt_start) if time is not None]
    budget = limits.stall_seconds.get(metadata.phase or "train")
    silent = bool(beats) and now - max(beats) > limits.stale_seconds / 2
    still = budget is not None and bool(moves) and now - max(moves) > budget / 2
    return silent or still


def believed(time: float | None, now: float) -> float | None:
    """Return a stated time unless it cannot be: not after 1970, or far in the future."""
    return time if time is not None and 0 < time <= now + AHEAD_SECONDS else None
