"""The record of one run as its files state it, and what follows from it. Pure: no clock, no file system.

Times are Unix seconds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trainwarden.classify import classify_message
from trainwarden.record.rank import newest_beats
from trainwarden.record.sentinels import Sentinel, run_state
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.thresholds import Thresholds

EXPIRY_SECONDS = 24 * 3600.0
# A time further ahead of this host's clock is no skew but an error, and would keep a dead record alive for years.
MAX_AHEAD_SECONDS = 24 * 3600.0
ENDED = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class RunRecord:
    """The files of one run as they were read.

    Attributes:
        modified: last change of the folder.
        has_metadata, has_progress: the file exists; where it is unreadable, `metadata` or `progress` is None.
        node_only: the folder holds only ranks, as on every node but that of rank 0.
        from_logs: nothing is recorded, but a log reports steps.
        lacks_ranks: some of its ranks were left out, because there are too many.
    """

    run_id: str
    modified: float
    thresholds: Thresholds
    has_metadata: bool = False
    has_progress: bool = False
    node_only: bool = False
    from_logs: bool = False
    lacks_ranks: bool = False
    metadata: Metadata | None = None
    progress: Progress | None = None
    error: Sentinel | None = None
    completion: Sentinel | None = None
    ranks: tuple[RankBeat, ...] = ()

    @functools.cached_property
    def state(self) -> str | None:
        """The run's state; None where no file states it."""
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
        """The progress, unless an older attempt wrote it."""
        if self.progress and self.attempt_key and self.progress.attempt_key not in (None, self.attempt_key):
            return None
        return self.progress

    @property
    def stall_budget(self) -> float | None:
        """The seconds without progress after which the run counts as stalled in its phase; None if it never does."""
        phase = (self.metadata and self.metadata.phase) or "train"
        durations = self.current_progress.step_durations if self.current_progress else None
        inferred = bool(self.metadata and self.metadata.phase_source)
        return self.thresholds.stall_budget(phase, durations, inferred=inferred)

    def precedence(self, now: float) -> tuple[bool, float, str]:
        """Return what a user's runs are ordered by: first what has not ended, then the latest sign of life.

        A sign of life that is ahead of this host's clock is none from the future.
        """
        return self.state in ENDED, -min(last_activity(self, now), now), self.run_id

    @functools.cached_property
    def current_ranks(self) -> tuple[RankBeat, ...]:
        """The ranks of the attempt that owns the record; of the newest attempt where no key is recorded."""
        key = self.attempt_key
        if key is None and self.ranks:
            key = max(self.ranks, key=lambda beat: beat.time or 0.0).attempt_key
        return newest_beats(beat for beat in self.ranks if beat.attempt_key in (None, key))


class StepHistory(NamedTuple):
    """The highest step that was seen of an attempt and its last step, each with the time at which it was first seen."""

    attempt_key: str | None
    step: int
    time: float
    last_step: int
    moved_time: float


def observe_step(before: StepHistory | None, record: RunRecord, now: float) -> StepHistory | None:
    """Return the history with one more record, for records without `step_time` and `moved_time`.

    A monitor may write the same step again and again, so neither the file's time nor its `last_updated` counts once a
    step has been seen; for the first step seen it is an upper bound of the time.
    """
    progress = record.current_progress
    if progress is None or progress.step is None:
        return before
    key = progress.attempt_key or record.attempt_key
    # Without a key a step that goes back is the only sign of a restart.
    restarted = before is not None and key is None and progress.step < before.step
    if before is None or before.attempt_key != key or restarted:
        updated = plausible_timestamp(progress.last_updated, now)
        since = now if updated is None else min(now, updated)
        return StepHistory(key, progress.step, since, progress.step, since)
    if progress.step > before.step:
        return StepHistory(key, progress.step, now, progress.step, now)
    return before if progress.step == before.last_step else before._replace(last_step=progress.step, moved_time=now)


@dataclass(frozen=True)
class FailureVerdict:
    """The failure that ended an attempt; empty where unknown."""

    attempt: str
    error_type: str
    failure: str
    subsystem: str
    severity: str
    message: str
    hint: str
    time: float | None


def failure_verdict(record: RunRecord) -> FailureVerdict:
    """Return the verdict on a failed attempt: what its sentinel states, completed from the taxonomy."""
    reason = (record.metadata.reason if record.metadata else None) or ""
    error = record.error or Sentinel(time=0.0, message=reason)
    known = FAILURES.get(error.failure or "") or classify_message(error.message)
    attempt = record.metadata.attempt if record.metadata and record.metadata.attempt is not None else error.attempt
    return FailureVerdict(
        attempt="" if attempt is None else str(attempt),
        error_type=error.error_type or (known.error_type if known else ""),
        failure=error.failure or (known.slug if known else ""),
        subsystem=error.subsystem or (known.subsystem if known else ""),
        severity=error.severity or (known.severity if known else ""),
        message=error.told,
        hint=error.hint or (known.hint if known else ""),
        time=record.error.time if record.error else record.end,
    )


def last_activity(record: RunRecord, now: float) -> float:
    """Return the latest time that the record states; its last change if it states none."""
    metadata, progress = record.metadata, record.progress
    stated = [beat.time for beat in record.ranks]
    stated += [sentinel.time for sentinel in (record.error, record.completion) if sentinel]
    if metadata:
        stated += [metadata.last_update, metadata.end_time, metadata.attempt_start_time, metadata.start_time]
    if progress:
        stated += [progress.last_updated, progress.step_time]
    latest = max([time for time in stated if time is not None], default=None)
    if plausible_timestamp(latest, now) is None:  # as in few records
        times = [time for time in stated if plausible_timestamp(time, now) is not None and time is not None]
        latest = max(times, default=None)
    return record.modified if latest is None else latest


class StepTimes(NamedTuple):
    """When an attempt's step last passed its own high-water mark, and when it last changed at all."""

    advanced: float | None
    changed: float | None


def is_quiet(record: RunRecord, step_time: float | None, now: float) -> bool:
    """Return whether a running attempt has used up half of a threshold: then its last log line is shown."""
    if record.state != "running":
        return False
    # Of a record that states no thresholds, those of the exporter.
    metadata, limits = record.metadata, record.thresholds
    last_update, phase_time = (metadata.last_update, metadata.phase_time) if metadata else (None, None)
    beats = [time for time in (last_update, step_time) if time is not None]
    moves = [time for time in (step_time, phase_time, record.attempt_start) if time is not None]
    budget = record.stall_budget
    silent = bool(beats) and now - max(beats) > limits.stale_seconds / 2
    still = budget is not None and bool(moves) and now - max(moves) > budget / 2
    return silent or still


def plausible_timestamp(time: float | None, now: float) -> float | None:
    """Return a stated time; None if it lies before 1970 or more than `MAX_AHEAD_SECONDS` in the future."""
    return time if time is not None and 0 < time <= now + MAX_AHEAD_SECONDS else None
