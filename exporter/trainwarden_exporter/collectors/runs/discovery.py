"""Find all runs: in the runs folder and in the copies of records in S3. Of a run in both, the fresher record counts."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.runs.copies import CopiedRunFolder, S3Copies
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.collectors.runs.last_line import NEEDED
from trainwarden_exporter.collectors.runs.limits import BYTES, DEFAULT_LIMITS, KeptRanks, RunLimits
from trainwarden_exporter.collectors.runs.names import NamedFolder, RunNames
from trainwarden_exporter.collectors.runs.problems import BLOCKED, RecordProblem, RecordProblems
from trainwarden_exporter.collectors.runs.record import EXPIRY_SECONDS, last_activity
from trainwarden_exporter.core.owned_folder import ReadBudget
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.record import RunRecord
    from trainwarden_exporter.sampling.blocking_io import Blocked

# An expired record may be written to again, but thousands of them need not be looked at in each sample.
ASLEEP_SECONDS = 15.0
# How many places further the next round begins.
ROTATED = 61
# A copy is some seconds late; the choice between the two must not change in each sample.
FRESHER_SECONDS = 60.0


class DiscoveredRun(NamedTuple):
    """A run's record and its folder."""

    folder: RunFolder
    record: RunRecord

    @property
    def copied(self) -> bool:
        """The record is that of S3."""
        return isinstance(self.folder, CopiedRunFolder)


class RunDiscovery:
    """Reads the records of all runs.

    Args:
        path: the runs folder; need not exist yet.
        copies: folders of copies of records in S3.
        defaults: thresholds of records that state none.
        problems: takes what cannot be used.
        timeout: seconds until a run's folder counts as blocked.
        last_line: when the last lines of logs are shown: NEEDED, ALWAYS or NEVER.
        limits: of what is read.
        host: whose ranks are read, beside those with a file of their own; those of all hosts if None.
        monotonic: the clock by which folders sleep.

    Attributes:
        known: ids of the runs that have a folder or a copy, whatever is in it.
        blocked: the runs whose folders do not answer, and the call that each is in.
        owners: the users of the runs that were looked at, by run id.
        expired: number of runs without a sign of life for `EXPIRY_SECONDS`.
        left_out: number of folders that were not looked at, because there are too many.
        unread: number of new runs that there was no budget to read.
    """

    def __init__(
        self,
        path: Path,
        copies: Sequence[Path],
        defaults: Thresholds,
        problems: RecordProblems,
        timeout: float,
        last_line: str = NEEDED,
        limits: RunLimits = DEFAULT_LIMITS,
        host: str | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._names = RunNames(path, timeout)
        self._copies = S3Copies(copies, defaults, last_line, limits)
        self._defaults = defaults
        self._last_line = last_line
        self._limits = limits
        self._host = host
        self._monotonic = monotonic
        self._budget = ReadBudget(limits.owner_bytes)
        self._crash_budget = ReadBudget(limits.owner_crash_work)
        self._time_budget = ReadBudget(round(1e6 * limits.owner_seconds), round(1e6 * limits.all_seconds))
        self._kept_ranks = KeptRanks(limits)
        self._rounds = 0
        self._problems = problems
        self._pool: BlockingIoPool[RunFolder] = BlockingIoPool(timeout, lambda folder: folder.owner)
        self._folders: dict[str, RunFolder] = {}
        self.known: frozenset[str] = frozenset()
        self.blocked: list[Blocked[RunFolder]] = []
        self.owners: dict[str, int] = {}
        self.expired = 0
        self.left_out = self.unread = 0

    @property
    def bytes_read(self) -> int:
        """How much was read of records in the last round."""
        return self._budget.total

    def discover(self, now: float) -> list[DiscoveredRun]:
        """Return every run that has not expired.

        Raises:
            OSError: the runs folder is there and cannot be read.
            TooManyBlocked: nothing on its file system answers.
        """
        names = self._names.listed(now)
        self._problems.extend(self._names.problems)
        copies = self._copies.folders(now)
        self.known = frozenset(names.keys() | copies.keys())
        clock = self._monotonic()
        here = self._chosen(names, clock)
        folders = [*here.values(), *copies.values()]
        awake = [folder for folder in folders if folder.asleep_until <= clock]
        self._budget.begin()
        self._crash_budget.begin()
        self._time_budget.begin()
        # Each is among the first in some round: what there is no budget for in one is done in another.
        self._rounds += 1
        first = self._rounds * ROTATED % max(1, len(awake))
        order = [*awake[first:], *awake[:first]]
        # A user whose records took long does not keep the others' from being read; of one user's those come first that
        # there was no time for longest. At first nobody took any: those come first who have few.
        before, number = self._time_budget.before, Counter(folder.owner for folder in order)
        order.sort(key=lambda folder: (before[folder.owner], number[folder.owner], folder.last_round))
        records = self._pool.map(order, lambda folder: self._read(folder, now))
        for name, folder in here.items():
            names[name].asleep_until = folder.asleep_until
        # Of an expired run nothing but its name is kept: there are thousands of them.
        self._folders = {name: folder for name, folder in here.items() if folder.asleep_until <= clock}
        self._kept_ranks.keep_only(self._folders)
        self.blocked = self._pool.blocked
        self._problems.extend(
            RecordProblem(BLOCKED, each.key.run_id, f"{each.call} does not answer") for each in self.blocked
        )
        self._problems.extend(
            RecordProblem(BLOCKED, each.run_id, "is not looked at: too many of the same user do not answer")
            for each in self._pool.passed_over
        )
        self.owners = {folder.run_id: folder.owner for folder in awake}
        self.unread = sum(folder.shown is None and BYTES in folder.left_out for folder in awake)
        found: dict[str, DiscoveredRun] = {}
        for folder in awake:
            record = records.get(folder)
            if record is not None:
                self._problems.extend(folder.problems)
                known = found.get(folder.run_id)
                found[folder.run_id] = (
                    DiscoveredRun(folder, record)
                    if known is None
                    else _fresher(known, DiscoveredRun(folder, record), now)
                )
        asleep = {name for name, each in names.items() if each.asleep_until > clock}
        asleep.update(copy.run_id for copy in copies.values() if copy.asleep_until > clock)
        self.expired = len(asleep - found.keys())
        return list(found.values())

    @property
    def rank_series(self) -> int:
        """How many series the ranks of all runs would have that were read, at most."""
        return self._kept_ranks.total

    def _chosen(self, names: dict[str, NamedFolder], clock: float) -> dict[str, RunFolder]:
        """Return the folders that are to be read: all that are awake, or each user's share of what is read at most."""
        awake = [each for each in names.values() if each.asleep_until <= clock]
        self.left_out = self._names.left_out
        if len(awake) > self._limits.folders:
            # Of each user those that are exported stay.
            shown = {name for name, folder in self._folders.items() if folder.shown is not None}
            self.left_out += len(awake) - self._limits.folders
            awake = self._names.newest(awake, self._limits.folders, shown)
        # Whose a folder is has to be known before it is opened: it may be a link to what never answers.
        self._names.look(each for each in awake if each.name not in self._folders)
        return {each.name: self._folders.get(each.name) or self._folder(each) for each in awake}

    def _folder(self, named: NamedFolder) -> RunFolder:
        path = self._path / named.name
        folder = RunFolder(
            path,
            self._defaults,
            self._last_line,
            self._limits,
            self._budget,
            self._host,
            self._crash_budget,
            self._kept_ranks,
        )
        folder.owner = -1 if named.owner is None else named.owner
        return folder

    def _read(self, folder: RunFolder, now: float) -> RunRecord | None:
        """Return the record of one run; None if it has expired or cannot be read."""
        owner = folder.owner
        if not self._time_budget.take(owner, 0):
            return folder.postponed()
        # Not of a clock: a slow file system is no work, and a unit's quota makes all users' records take longer.
        began = time.thread_time()
        try:
            return self._read_in_time(folder, now)
        finally:
            self._time_budget.take(owner, round(1e6 * (time.thread_time() - began)))

    def _read_in_time(self, folder: RunFolder, now: float) -> RunRecord | None:
        record = None
        with self._problems.isolated(folder.run_id):
            if folder.shown is None and not isinstance(folder, CopiedRunFolder) and folder.is_abandoned(now):
                folder.asleep_until = self._monotonic() + ASLEEP_SECONDS
                return None
            found = folder.read(now)
            folder.last_round = self._rounds
            folder.verdict(found)  # kept until it is shown: to classify a message takes longer than to read it
            if folder.shown is None and BYTES in folder.left_out:
                return None  # what is still to be read may be anything
            if now - last_activity(found, now) > EXPIRY_SECONDS:
                folder.asleep_until = self._monotonic() + ASLEEP_SECONDS
            else:
                record = found
        return record


def _fresher(here: DiscoveredRun, copy: DiscoveredRun, now: float) -> DiscoveredRun:
    """Return the record of the runs folder, unless the copy is fresher. S3 has no ranks: they are the folder's."""
    lacks = here.record.metadata is None and copy.record.metadata is not None
    if lacks or last_activity(copy.record, now) > last_activity(here.record, now) + FRESHER_SECONDS:
        return DiscoveredRun(copy.folder, replace(copy.record, ranks=here.record.ranks))
    return here
