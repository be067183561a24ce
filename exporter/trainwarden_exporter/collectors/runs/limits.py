"""What one run, one user and one page may take at most, and how it is shared where it is not enough for all."""

from __future__ import annotations

import heapq
import operator
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainwarden.record.rank import MAX_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from trainwarden.record.rank import RankBeat

T = TypeVar("T")

FOLDERS, RUNS, BYTES, RANKS, SERIES = "folders", "runs", "bytes", "ranks", "series"
# Why something of a run is not exported.
REASONS = (FOLDERS, RUNS, BYTES, RANKS, SERIES)
# Series of a run without its ranks, at most, of each rank, and of each host of ranks.
SERIES_OF_RUN, SERIES_OF_RANK, SERIES_OF_HOST = 92, 4, 2
# Each series has the run's id, which is most of it where it is long: with so many characters a series counts twice.
LONG_ID = 64
# Of the host and the GPU of a rank together so many characters, and for each further step a series counts once more.
LONG_PLACE, PLACE_STEP = 96, 32


@dataclass(frozen=True)
class RunLimits:
    """The limits of the collector of runs; a user is the owner of a run's folder.

    Attributes:
        runs: that are exported; twice as many folders are read.
        file_bytes: of one file of a record; a larger one is not read.
        owner_bytes: of one user's changed files that are read in one sample; the rest is read in the next.
        owner_seconds: of processor time to read one user's records in one sample; the rest is read in the next.
        all_seconds: as `owner_seconds`, of all users together.
        owner_crash_work: what is done in one sample to find crashes in one user's runs, about so many names looked at;
            the rest is done in the next.
        series: on the page.
        owner_series: of one user.
        run_series: of one run; so many of its ranks are kept as that allows.
        rank_files, rank_bytes: in a run's folder of ranks; of a folder with more no rank is read.
    """

    runs: int = 2000
    file_bytes: int = 512 * 2**10
    owner_bytes: int = 16 * 2**20
    owner_seconds: float = 0.5
    all_seconds: float = 0.75
    owner_crash_work: int = 65_536
    series: int = 200_000
    owner_series: int = 100_000
    run_series: int = 20_000
    rank_files: int = 16384
    rank_bytes: int = 16 * 2**20

    @property
    def folders(self) -> int:
        """How many folders are read in one sample."""
        return 2 * self.runs


DEFAULT_LIMITS = RunLimits()


class KeptRanks:
    """How many series the ranks of each run have that are kept in memory. Of many each user has a share.

    Attributes:
        total: series of the ranks of all runs.
    """

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._kept: dict[str, tuple[int, int]] = {}  # by run: its user, and the series
        self._of_users: Counter[int] = Counter()
        self.total = 0

    def keep_first(self, run_id: str, owner: int, beats: Sequence[RankBeat]) -> int:
        """Keep the first ranks of a run, which is a user's, as far as there is room; return how many."""
        series = series_of_ranks(beats)
        if (
            self._kept.get(run_id) == (owner, series)
            and self.total <= self._limits.series
            and self._of_users[owner] <= self._limits.owner_series
        ):
            return len(beats)  # as before, which is so in nearly all samples
        kept = ranks_within(beats, self.room(run_id, owner))
        self.keep(run_id, owner, series_of_ranks(beats[:kept]))
        return kept

    def room(self, run_id: str, owner: int) -> int:
        """Return how many series the ranks of a run may have, which is a user's."""
        self.keep(run_id, owner, 0)
        total, own = self.total, self._of_users[owner]
        share = self._limits.series // max(1, len(self._of_users.keys() | {owner}))
        free = min(self._limits.owner_series - own, max(self._limits.series - total, share - own))
        return max(0, min(self._limits.run_series, free))

    def keep(self, run_id: str, owner: int, series: int) -> None:
        """Note how many series the ranks of a run have."""
        known = self._kept.pop(run_id, None)
        if known is not None:
            self.total -= known[1]
            self._of_users[known[0]] -= known[1]
            if not self._of_users[known[0]]:
                del self._of_users[known[0]]
        if series:
            self._kept[run_id] = owner, series
            self.total += series
            self._of_users[owner] += series

    def keep_only(self, run_ids: Container[str]) -> None:
        """Forget all other runs."""
        for run_id in [run_id for run_id in self._kept if run_id not in run_ids]:
            self.keep(run_id, 0, 0)


def series_of_ranks(beats: Sequence[RankBeat]) -> int:
    """Return how many series ranks have, at most."""
    # Lists, which take half the time of generators: it is asked of every rank in every sample.
    sections = sum([len(beat.sections) for beat in beats])
    taken = sum([beat.gpu_taken_bytes is not None for beat in beats])
    return SERIES_OF_RANK * len(beats) + sections + taken + SERIES_OF_HOST * len({beat.host for beat in beats})


def ranks_within(beats: Sequence[RankBeat], most: int) -> int:
    """Return how many of the ranks, the first ones, have no more than so many series together."""
    low, high = 0, len(beats)
    # As of nearly all runs: each rank on a host of its own, with all the sections that a record may have.
    if high * (SERIES_OF_RANK + MAX_SECTIONS + 1 + SERIES_OF_HOST) <= most or series_of_ranks(beats) <= most:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if series_of_ranks(beats[:middle]) <= most else (low, middle - 1)
    return low


def weight_of(run_id: str, beats: Sequence[RankBeat]) -> int:
    """Return as how many series each series of a run counts: by the length of its names, as memory does."""
    longest = max([len(beat.host or "") + len(beat.uuid or "") for beat in beats], default=0)
    return 1 + len(run_id) // LONG_ID + max(0, longest - LONG_PLACE) // PLACE_STEP


def all_fit(runs: int, rank_series: int, limits: RunLimits, heaviest: int) -> bool:
    """Return whether so many runs have a place, whosever they are.

    `rank_series` are those of all their ranks, `heaviest` is the weight of the run of which each counts most.
    """
    needed = heaviest * (rank_series + SERIES_OF_RUN * runs)
    return runs <= limits.runs and needed <= min(limits.series, limits.owner_series)


def fair_order(items: Iterable[T], owner: Callable[[T], Any], rank: Callable[[T], Any]) -> list[T]:
    """Return the items so that each user's first comes before any user's second; of one user by `rank`.

    `owner` returns the user's number, or name.

    However many one user has, of the first `n` items each of `m` users has `n / m`, or all that it has.
    """
    of_owner: dict[Any, list[tuple[Any, T]]] = defaultdict(list)
    for each in sorted(((rank(item), item) for item in items), key=operator.itemgetter(0)):
        of_owner[owner(each[1])].append(each)
    places = [(place, ranked, uid, item) for uid, own in of_owner.items() for place, (ranked, item) in enumerate(own)]
    return [item for *_, item in sorted(places, key=lambda each: each[:3])]


def fair_share(
    items: Iterable[T], most: int, owner: Callable[[T], Any], rank: Callable[[T], Any]
) -> tuple[list[T], list[T]]:
    """Return at most so many items, of each user as many or all that it has, and the others; of one user by `rank`.

    Of many thousands it takes a fraction of the time of `fair_order`, which orders what it takes as well.
    """
    of_owner: dict[Any, list[T]] = defaultdict(list)
    for item in items:
        of_owner[owner(item)].append(item)
    taken: list[T] = []
    others: list[T] = []
    for place, own in enumerate(sorted(of_owner.values(), key=len)):
        share = (most - len(taken)) // (len(of_owner) - place)
        if len(own) > share:
            own.sort(key=rank)
        taken += own[:share]
        others += own[share:]
    return taken, others


def share_series(
    items: Iterable[T],
    owner: Callable[[T], int],
    of_ranks: Callable[[T], int],
    limits: RunLimits,
    weight: Callable[[T], int],
) -> tuple[list[tuple[T, bool]], int]:
    """Decide which runs have a place on the page, and which of them have one for their ranks too.

    The next place goes to the user who has the fewest series so far, to the first of its runs in the order given.

    Args:
        items: the runs.
        owner: returns the number of a run's user.
        of_ranks: returns how many series the ranks of a run have.
        limits: of the page and a user.
        weight: returns as how many series each one of a run counts.

    Returns:
        The runs that have a place, whether their ranks have one, and the number of runs that have none.
    """
    room, granted, left_out = limits.series, [], 0

    def grant(item: T, used: int) -> int:
        nonlocal room, left_out
        free = min(room, limits.owner_series - used)
        without = weight(item) * SERIES_OF_RUN
        with_ranks = without + weight(item) * of_ranks(item)
        taken = next((size for size in (with_ranks, without) if size <= free), 0)
        if taken:
            granted.append((item, taken == with_ranks))
            room -= taken
        else:
            left_out += 1
        return taken

    take_in_turn(items, owner, grant)
    return granted, left_out


def take_in_turn(items: Iterable[T], owner: Callable[[T], int], take: Callable[[T, int], int]) -> None:
    """Call `take` on each item: next on the first one, in the order given, of the user whose items took least so far.

    `take` is called with an item and what its user has taken; it returns what the item takes.
    """
    waiting: dict[int, deque[T]] = defaultdict(deque)
    for item in items:
        waiting[owner(item)].append(item)
    queue = [(0, uid) for uid in sorted(waiting)]
    heapq.heapify(queue)
    while queue:
        used, uid = heapq.heappop(queue)
        used += take(waiting[uid].popleft(), used)
        if waiting[uid]:
            heapq.heappush(queue, (used, uid))
