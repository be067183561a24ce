"""When a run last gave a sign of life and last moved, and which ranks of it are silent. Pure: no clock, no files.

The rules need one series of each run for it, not the largest of several. Times are Unix seconds.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.runs.record import MAX_AHEAD_SECONDS, plausible_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden.record.rank import RankBeat
    from trainwarden_exporter.collectors.runs.record import RunRecord, StepTimes

# What the motion of a run is judged by: steps that it reported, the beginning of its phase, steps in its log, what its
# command prints, or no step at all in a train phase that has begun.
STEP, PHASE, LOG, OUTPUT, NONE = "step", "phase", "log", "output", "none"
# A world that is larger is taken for a mistake.
MAX_WORLD = 65_536


class Motion(NamedTuple):
    """How the loop of a run moves.

    Attributes:
        phase: of the run.
        basis: what this is judged by: STEP, PHASE, LOG, OUTPUT or NONE.
        moved: the last change of the step, the start of the phase or the start of the attempt, whichever is latest.
        advanced: the same, where a step counts that passed the high-water mark of its attempt.
    """

    phase: str
    basis: str
    moved: float
    advanced: float


def last_life(record: RunRecord, ranks: Iterable[RankBeat], now: float) -> float | None:
    """Return the last heartbeat of any kind; None where there was none.

    One from before the attempt counts as the attempt's start.
    """
    progress = record.current_progress
    beats = [record.metadata.last_update if record.metadata else None, progress.last_updated if progress else None]
    known = _plausible(now, *beats, *[beat.time for beat in ranks])
    return max([*known, *_plausible(now, record.attempt_start)]) if known else None


def motion(record: RunRecord, steps: StepTimes, logged: float | None, now: float) -> Motion | None:
    """Return how the loop moves; None where neither steps nor phases are recorded.

    Args:
        record: of the run.
        steps: when its recorded step advanced and changed.
        logged: when the step in its log last changed; None where there is none, or steps are recorded.
        now: the exporter's clock.
    """
    metadata = record.metadata
    if metadata is None:
        return None
    phase = metadata.phase or "train"
    began = plausible_timestamp(metadata.phase_time, now)
    if metadata.phase_source:
        basis = OUTPUT if began is not None else None
    elif phase != "train" and began is not None:
        basis = PHASE
    elif plausible_timestamp(steps.advanced, now) is not None:
        basis = STEP
    elif began is None:
        basis = None
    else:
        basis = NONE if logged is None else LOG
    if basis is None:
        return None
    since = _plausible(now, began, record.attempt_start)
    advanced, moved = _plausible(now, steps.advanced), _plausible(now, steps.advanced, steps.changed, logged)
    return Motion(phase, basis, max(since + moved), max([*since, *advanced, *_plausible(now, logged)]))


class HostRanks(NamedTuple):
    """Ranks of one host.

    Attributes:
        ranks: their numbers, as `rank_ranges` writes them.
        time: the newest of their heartbeats; of silent ones the oldest.
    """

    host: str
    ranks: str
    time: float


def ranks_by_host(beats: Iterable[RankBeat], now: float) -> list[HostRanks]:
    """Return the ranks of each host, with the newest heartbeat."""
    return _by_host(beats, max, now)


def silent_ranks(beats: Iterable[RankBeat], stale_seconds: float, now: float) -> list[HostRanks]:
    """Return the ranks of each host that have not ended and whose last heartbeat is too old, with the oldest."""
    silent = [beat for beat in beats if beat.time is not None and now - beat.time > stale_seconds]
    return _by_host([beat for beat in silent if beat.status in (None, "running")], min, now) if silent else []


def missing_ranks(record: RunRecord) -> list[int]:
    """Return the ranks of a running attempt that have no file, in order; none where it is unknown which there are.

    It is where some were left out. Where no rank has a file, ranks write none, as below a wrapper that records for all.
    """
    size = (record.metadata.world_size or 0) if record.metadata else 0
    present = {beat.rank for beat in record.current_ranks}
    if record.lacks_ranks or record.state != "running" or not present or not len(present) < size <= MAX_WORLD:
        return []
    return [rank for rank in range(size) if rank not in present]


def rank_ranges(ranks: Iterable[int]) -> str:
    """Return numbers as text, e.g. `0-3,7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _by_host(beats: Iterable[RankBeat], of: Callable[[Iterable[float]], float], now: float) -> list[HostRanks]:
    hosts: dict[str, dict[int, float]] = defaultdict(dict)
    for beat in beats:
        if (time := plausible_timestamp(beat.time, now)) is not None:
            hosts[beat.host or ""][beat.rank] = time
    return [HostRanks(host, _known_ranges(tuple(times)), of(times.values())) for host, times in sorted(hosts.items())]


# The hosts of most runs have the same ranks, sample after sample.
_known_ranges = lru_cache(256)(rank_ranges)


def _plausible(now: float, *times: float | None) -> list[float]:
    return [time for time in times if time is not None and 0 < time <= now + MAX_AHEAD_SECONDS]
