"""Stamps of a record that lie in this host's future, because its writer's clock is ahead: they age all the same."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from trainwarden_exporter.collectors.runs.record import MAX_AHEAD_SECONDS

if TYPE_CHECKING:
    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.sentinels import Sentinel
    from trainwarden_exporter.collectors.runs.record import RunRecord

Dated = TypeVar("Dated", "Metadata", "Progress", "Sentinel", "RankBeat")

METADATA_TIMES = ("start_time", "attempt_start_time", "phase_time", "end_time", "last_update")
PROGRESS_TIMES = ("last_updated", "step_time", "moved_time")
_METADATA_TIMES_OF, _PROGRESS_TIMES_OF = operator.attrgetter(*METADATA_TIMES), operator.attrgetter(*PROGRESS_TIMES)
# Nearer ones are the precision of a clock, and none is silent for want of so little.
_NEAR_SECONDS = 1.0
# More than the documents of a record have.
_MAX_FIELDS = 16


class FutureTimes:
    """Puts the time at which a stamp was first seen in place of one that lies in the future, until it is another stamp.

    Without it a run whose host's clock is hours ahead would seem to live for as long after its end. A time that is
    further ahead than a clock may be stays as it is, for it is rejected, until it no longer is.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str | int], tuple[float, float]] = {}
        self._latest = 0.0
        self._rejected_until = math.inf

    def is_due(self, now: float) -> bool:
        """Return whether a time lies in the future that did not: this host's clock was set back, or it was rejected."""
        return self._latest > now + _NEAR_SECONDS or now >= self._rejected_until

    def replaced(self, record: RunRecord, now: float) -> RunRecord:
        """Return the record with no time in the future; the same object where there was none."""
        self._latest, self._rejected_until = 0.0, math.inf
        if not self._seen and (latest := _latest_time(record)) <= now + _NEAR_SECONDS:
            self._latest = latest  # as in nearly all samples of nearly all runs
            return record
        if len(self._seen) > len(record.ranks) + _MAX_FIELDS:
            there = {(_of_rank(beat), beat.rank) for beat in record.ranks}
            self._seen = {key: each for key, each in self._seen.items() if isinstance(key[1], str) or key in there}
        metadata = record.metadata and self._document("metadata", record.metadata, METADATA_TIMES, now)
        progress = record.progress and self._document("progress", record.progress, PROGRESS_TIMES, now)
        if progress and progress.checkpoint:
            saved = self.seen("checkpoint", "time", progress.checkpoint.time, now)
            if saved != progress.checkpoint.time:
                progress = progress.replace(checkpoint=progress.checkpoint.replace(time=saved))
        error = record.error and self._document("error", record.error, ("time",), now)
        completion = record.completion and self._document("completion", record.completion, ("time",), now)
        ranks = tuple(self._rank(beat, now) for beat in record.ranks)
        before = (record.metadata, record.progress, record.error, record.completion, *record.ranks)
        after = (metadata, progress, error, completion, *ranks)
        if all(one is other for one, other in zip(before, after, strict=True)):
            return record
        return replace(record, metadata=metadata, progress=progress, error=error, completion=completion, ranks=ranks)

    def seen(self, document: str, field: str | int, stated: float | None, now: float) -> float | None:
        """Return a stated time, or when it was first seen if that was before it."""
        if stated is None:
            return None
        if stated > now + MAX_AHEAD_SECONDS:
            self._rejected_until = min(self._rejected_until, stated - MAX_AHEAD_SECONDS)
            return stated
        key = document, field
        known = self._seen.get(key)
        if known is not None and known[0] == stated and known[1] <= now:
            time = known[1]
        elif stated > now + _NEAR_SECONDS:
            self._seen[key] = stated, now
            time = now
        else:
            self._seen.pop(key, None)
            time = stated
        self._latest = max(self._latest, time)
        return time

    def _document(self, name: str, document: Dated, fields: tuple[str, ...], now: float) -> Dated:
        changed = {}
        for field in fields:
            stated = getattr(document, field, None)
            time = self.seen(name, field, stated, now)
            if time != stated:
                changed[field] = time
        return document.replace(**changed) if changed else document

    def _rank(self, beat: RankBeat, now: float) -> RankBeat:
        time = self.seen(_of_rank(beat), beat.rank, beat.time, now)
        return beat if time == beat.time else beat.replace(time=time)


def _latest_time(record: RunRecord) -> float:
    """Return the latest time of all that a record states; 0 if it states none."""
    metadata, progress = record.metadata, record.progress
    stated = [beat.time for beat in record.ranks]
    if metadata:
        stated += _METADATA_TIMES_OF(metadata)
    if progress:
        stated += _PROGRESS_TIMES_OF(progress)
        if progress.checkpoint:
            stated.append(progress.checkpoint.time)
    stated += [sentinel.time for sentinel in (record.error, record.completion) if sentinel]
    return max([time for time in stated if time is not None], default=0.0)


def _of_rank(beat: RankBeat) -> str:
    return f"rank of {beat.host}"
