"""The logs of all runs, read by turns: one that never answers costs its own run alone."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.logs.run import logs_of
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden.signals.tailing.log import TailedLog
    from trainwarden_exporter.collectors.logs.packs import LogPacks
    from trainwarden_exporter.collectors.logs.problems import LogProblems
    from trainwarden_exporter.collectors.logs.run import RunLogs
    from trainwarden_exporter.sampling.blocking_io import Blocked

# Of one look: a storm in one log, or a long one seen for the first time, must not keep the others waiting.
LOOK_BYTES = 32 * 2**20
LOOK_SECONDS = 2.0
# A log that nothing happens to needs no open file.
REST_SECONDS = 60.0
RESTARTS = ("rotated", "truncated", "removed", "replaced")


class Turns:
    """Reads what is new in many logs.

    Args:
        packs: say where the logs of a run are.
        max_files: how many logs are followed at most.
        problems: takes what cannot be read.

    Attributes:
        read: bytes so far.
        restarts: how often a log began anew, by reason.
        dropped: logs that the last look left out.
    """

    def __init__(self, packs: LogPacks, max_files: int, problems: LogProblems) -> None:
        self._packs = packs
        self._max_files = max_files
        self._problems = problems
        self._looker: BlockingIoPool[RunLogs] = BlockingIoPool()
        self._turn = self._followed = self._left = 0
        self._until = 0.0
        self.read = 0
        self.restarts: Counter[str] = Counter(dict.fromkeys(RESTARTS, 0))
        self.dropped = 0

    @property
    def blocked(self) -> Sequence[Blocked[RunLogs]]:
        """The runs whose logs do not answer: another thread is still in the middle of them."""
        return self._looker.blocked

    def hangs(self, run: RunLogs) -> bool:
        """Whether it is one of those `blocked`."""
        return self._looker.is_blocked(run)

    def take(self, runs: Sequence[RunLogs], followed: int, now: float) -> list[RunLogs]:
        """Give each log a turn, again and again, until all are read or the look has done its share.

        Args:
            runs: whose logs are looked at.
            followed: how many logs all runs have.
            now: Unix seconds.

        Returns:
            The runs of whose logs nothing is left to be read.

        Raises:
            TooManyBlocked: nothing on their file system answers.
        """
        self._until, self._left = time.monotonic() + LOOK_SECONDS, LOOK_BYTES
        self._followed, self.dropped = followed, 0
        self._turn += 1
        start = self._turn % max(1, len(runs))
        in_turn = [*runs[start:], *runs[:start]]
        return self._looker.map_in_rounds(in_turn, partial(self._first, now), partial(self._next, now), self._goes_on)

    def _first(self, now: float, run: RunLogs) -> list[TailedLog]:
        """See what became of a run's files, and read a piece of each; returns those that are not read to their end."""
        readable: list[TailedLog] = []

        def look() -> None:
            enter("list")
            before = len(run.logs)
            room = self._max_files - self._followed + before
            paths = logs_of(run.run, self._packs.templates(run.run, run.searcher))
            self.dropped += run.look(paths, max(0, room), self._problems)
            self._followed += len(run.logs) - before
            for each in run.logs.values():
                enter("stat")
                # What cannot be read at all keeps nobody from judging by the rest.
                if self._problems.safely(each.path, partial(each.poll, now)):
                    readable.append(each)

        self._problems.safely(run.run.run_id, look)
        return self._next(now, run, readable)

    def _next(self, now: float, run: RunLogs, unread: list[TailedLog]) -> list[TailedLog]:
        """Read one more piece of each of these logs of a run; returns those that are not read to their end."""
        return [each for each in unread if not self._goes_on() or self._taken(run, each, now)]

    def _goes_on(self) -> bool:
        return self._left > 0 and time.monotonic() < self._until

    def _taken(self, run: RunLogs, each: TailedLog, now: float) -> bool:
        """Read a piece; False if there was none."""
        enter("read")
        done = 0

        def take() -> None:
            nonlocal done
            done = run.take(each, now)

        self._problems.safely(each.path, take)
        self.restarts.update(each.follower.restarts)
        each.follower.restarts.clear()
        self._left -= done
        self.read += done
        modified = each.follower.modified
        if not done and modified is not None and now - modified > REST_SECONDS:
            each.follower.rest()
        return done > 0
