"""Read the logs of all runs, each byte once, for signals, progress and whatever else is registered in the shared state.

The bytes of a log go to the scanner of signals and progress first, which decides where a record ends, and then to each
`LogConsumer`. Logs are read in rounds, in the threads of a `BlockingIoPool`: a log that never answers costs its own run
alone.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from trainwarden.signals.tailing.follower import Follower
from trainwarden.signals.tailing.log import FEWEST_SEEN, MAX_SEEN
from trainwarden_exporter.core.shared_state import LogFiles
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainwarden.signals.tailing.log import TailedLog
    from trainwarden.signals.tailing.remainder import Position
    from trainwarden_exporter.collectors.logs.packs import LogPacks
    from trainwarden_exporter.collectors.logs.problems import LogProblems
    from trainwarden_exporter.collectors.logs.run_logs import RunLogs
    from trainwarden_exporter.core.shared_state import LogConsumer, SharedState
    from trainwarden_exporter.sampling.blocking_io import Blocked

# Limits of one round: a storm in one log, or a long log seen for the first time, must not delay the others.
ROUND_BYTES = 32 * 2**20
ROUND_SECONDS = 2.0
# Limits for the beginnings of logs that a consumer has missed: per round of all logs, and per log.
HEAD_ROUND_BYTES = 8 * 2**20
HEAD_BYTES = 64 * 2**20
SLICE_BYTES = 256 * 1024
# Matches that the logs of one user may keep, of 2 to 3 kB each.
SEEN_OF_USER = 4096
# In a piece; fewer are what programs print now and then.
NULS = 16
# A log that has not grown for so long needs no open file.
REST_SECONDS = 60.0
RESTARTS = ("rotated", "truncated", "removed", "replaced")


class LogHead:
    """The beginning of a log, up to where it was being followed when a consumer was first fed with it.

    Args:
        path: of the log.
        roots: folders outside of which nothing is read.
        end: where it was being followed; at most `HEAD_BYTES` are read.
    """

    def __init__(self, path: str, roots: Sequence[str], end: Position) -> None:
        self.path = path
        self.source = f"{path}\0head"
        self._end = min(end.offset, HEAD_BYTES)
        # Of this file, whatever is at its path by then.
        self._follower = Follower(path, roots, replace(end, offset=0, before=b""))
        self._polled = False

    def read(self) -> bytes | None:
        """Return the next whole lines; None at the end. Raises `OSError` and `Refused`; nothing follows then."""
        if not self._polled:
            self._follower.poll()
            self._polled = True
        left = min(SLICE_BYTES, self._end - self._follower.offset)
        piece = self._follower.read(left) if left > 0 else None
        if piece is None or piece.anew:
            self.close()
            return None
        lines = max(piece.data.rfind(b"\n"), piece.data.rfind(b"\r")) + 1
        # A line that fills a slice, or reaches the end, is taken in parts.
        self._follower.consume(lines or len(piece.data))
        return piece.data[: lines or len(piece.data)]

    def close(self) -> None:
        """Close the file."""
        self._follower.close()


class LogFeed:
    """What one consumer has been fed of one run, and the beginnings of logs that it still lacks.

    Attributes:
        heads: beginnings that were read or skipped before the consumer was fed.
    """

    def __init__(self) -> None:
        self.heads: list[LogHead] = []
        self._unseen: set[str] | None = None

    def add(self, logs: Mapping[str, TailedLog], readable: Sequence[TailedLog], roots: Sequence[str]) -> None:
        """Feed the run's logs from now on, and the beginning as well of those of which some has been read before.

        A log that is followed only later is fed whole, or was under the name that it had before it was rotated.
        """
        if self._unseen is None:
            self._unseen = set(logs)
        for log in readable:
            if log.path in self._unseen:
                self._unseen.discard(log.path)
                if (position := log.follower.position) is not None and position.offset:
                    self.heads.append(LogHead(log.path, roots, position))

    def close(self) -> None:
        """Close all files."""
        for head in self.heads:
            head.close()
        self.heads.clear()


class LogReader:
    """Reads what is new in the logs of many runs.

    Args:
        packs: name the logs of a run and what is searched in them.
        roots: folders outside of which nothing is read.
        max_files: limit of the number of logs; beyond it a user may have a share of as many, by the number of users.
        shared: names the consumers.
        problems: counts what cannot be read.
        timeout: seconds until a run counts as blocked.

    Attributes:
        bytes_read: so far.
        restarts: how often a log began anew, by reason.
        dropped: logs beyond the limit in the last round.
    """

    def __init__(
        self,
        packs: LogPacks,
        roots: Sequence[str],
        max_files: int,
        shared: SharedState,
        problems: LogProblems,
        timeout: float,
    ) -> None:
        self._packs = packs
        self._roots = roots
        self._max_files = max_files
        self._shared = shared
        self._problems = problems
        self._pool: BlockingIoPool[RunLogs] = BlockingIoPool(timeout, lambda run: run.owner)
        self._feeds: dict[RunLogs, dict[LogConsumer, LogFeed]] = {}
        self._forgotten: set[RunLogs] = set()  # that a thread is still using
        self._unlisted: set[RunLogs] = set()  # of which it is not known whether there are other logs by now
        self._rounds = self._bytes_left = 0
        self._followed: Counter[int] = Counter()  # logs of each user
        self._deadline = 0.0
        self.bytes_read = 0
        self.restarts: Counter[str] = Counter(dict.fromkeys(RESTARTS, 0))
        self.dropped = 0

    @property
    def blocked(self) -> Sequence[Blocked[RunLogs]]:
        """The runs whose logs do not answer: a thread is still using them."""
        return self._pool.blocked

    def is_blocked(self, run: RunLogs) -> bool:
        """Return whether it is one of those `blocked`."""
        return self._pool.is_blocked(run)

    def files(self, runs: Sequence[RunLogs]) -> dict[str, LogFiles]:
        """Return the files of each run in the last round, by run id."""
        calls = {each.key: each.call or "read" for each in self.blocked}
        return {
            run.run.run_id: LogFiles(blocked=calls[run])
            if run in calls
            else LogFiles(len(run.logs.keys() - run.unreadable), len(run.unreadable), run.dropped)
            for run in runs
        }

    def forget(self, run: RunLogs) -> None:
        """Keep nothing of a run, and close its files; once no thread is using them any more."""
        if self.is_blocked(run):
            self._forgotten.add(run)
            return
        self._forgotten.discard(run)
        run.close()
        for feed in self._feeds.pop(run, {}).values():
            feed.close()

    def read_round(self, runs: Sequence[RunLogs], all_runs: Iterable[RunLogs], now: float) -> list[RunLogs]:
        """Read a piece of each log, again and again, until all are read to their end or the round's limits are reached.

        Args:
            runs: whose logs are read.
            all_runs: these included.
            now: Unix seconds.

        Returns:
            The runs whose logs have been read to their end.

        Raises:
            TooManyBlocked: nothing on their file system answers.
        """
        self._begin_budget(ROUND_BYTES)
        self._followed, self.dropped, self._unlisted = Counter(), 0, set()
        for run in all_runs:
            self._followed[run.owner] += len(run.logs)
        self._rounds += 1
        start = self._rounds % max(1, len(runs))
        order = [*runs[start:], *runs[:start]]
        done = self._pool.map_in_rounds(
            order, partial(self._open, now), partial(self._read_pieces, now), self._has_budget
        )
        for run in [run for run in self._forgotten if not self.is_blocked(run)]:
            self.forget(run)
        behind = [run for run in order if not self.is_blocked(run) and any(self._heads_of(run))]
        if behind:
            self._begin_budget(HEAD_ROUND_BYTES)
            self._pool.map_in_rounds(behind, self._read_heads, lambda run, _: self._read_heads(run), self._has_budget)
        return [run for run in done if not self.is_blocked(run) and run not in self._unlisted]

    def _begin_budget(self, size: int) -> None:
        self._deadline, self._bytes_left = time.monotonic() + ROUND_SECONDS, size

    def _has_budget(self) -> bool:
        return self._bytes_left > 0 and time.monotonic() < self._deadline

    def _open(self, now: float, run: RunLogs) -> list[TailedLog]:
        """Look which logs a run has, and read a piece of each; return those that are not read to their end."""
        readable: list[TailedLog] = []
        run.unreadable.clear()

        def look() -> None:
            feeds = self._feeds[run] = self._feeds_of(run)
            enter("list")
            before = len(run.logs)
            room = before + self._room_of(run.owner)
            paths = self._packs.log_paths(run.run, run.searcher)
            readable.extend(run.poll(now, self._problems))
            if paths is None:
                self._unlisted.add(run)
            else:
                new, run.dropped = run.follow(paths, max(0, room), now, self._problems)
                readable.extend(new)
            self.dropped += run.dropped
            self._followed[run.owner] += len(run.logs) - before
            most_seen = self._most_seen(run.owner)
            for log in run.logs.values():
                log.keep_at_most(most_seen)
            for feed in feeds.values():
                feed.add(run.logs, readable, self._roots)

        self._problems.isolate(run.run.run_id, look)
        return self._read_pieces(now, run, readable)

    def _room_of(self, owner: int) -> int:
        """Return how many more logs may be followed of a user: a share at least, however many those of others are."""
        share = self._max_files // max(1, len(self._followed))
        return max(self._max_files - self._followed.total(), share - self._followed[owner])

    def _most_seen(self, owner: int) -> int:
        """Return how many matches each log of a user may keep."""
        return max(FEWEST_SEEN, min(MAX_SEEN, SEEN_OF_USER // max(1, self._followed[owner])))

    def _feeds_of(self, run: RunLogs) -> dict[LogConsumer, LogFeed]:
        """Return the feeds of the consumers that want the run, and close those of the others."""
        before = self._feeds.get(run, {})
        feeds = {each: before.get(each) or LogFeed() for each in self._shared.log_consumers if each.wants(run.run)}
        for consumer in before.keys() - feeds.keys():
            before[consumer].close()
        return feeds

    def _read_pieces(self, now: float, run: RunLogs, unread: Sequence[TailedLog]) -> list[TailedLog]:
        """Read one more piece of each of these logs of a run; return those that are not read to their end."""
        return [log for log in unread if not self._has_budget() or self._read_piece(run, log, now)]

    def _read_piece(self, run: RunLogs, log: TailedLog, now: float) -> bool:
        """Read a piece and hand it on; return False if there was none."""
        enter("read")
        data = b""

        def read() -> None:
            nonlocal data
            data = run.read_piece(log, now)

        run.access(log.path, read, self._problems)
        self.restarts.update(log.follower.restarts)
        log.follower.restarts.clear()
        self._count(data)
        if data:
            if data.count(b"\0") >= NULS:
                self._problems.add("nuls", log.path, f"{log.path}: NUL bytes: a hole, or an encoding that is not read")
            for consumer in self._feeds.get(run, {}):
                self._problems.isolate(run.run.run_id, partial(consumer.feed, run.run, log.path, data))
        if not data and log.written is not None and now - log.written > REST_SECONDS:
            log.follower.close_idle()
        return bool(data)

    def _heads_of(self, run: RunLogs) -> list[tuple[LogConsumer, LogFeed]]:
        return [(consumer, feed) for consumer, feed in self._feeds.get(run, {}).items() if feed.heads]

    def _read_heads(self, run: RunLogs) -> list[tuple[LogConsumer, LogFeed]]:
        """Read one more piece of the first beginning that each consumer lacks; return what remains to be read."""
        for consumer, feed in self._heads_of(run) if self._has_budget() else ():
            enter("read")
            head, data = feed.heads[0], None

            def read(head: LogHead = head) -> None:
                nonlocal data
                data = head.read()

            run.access(head.path, read, self._problems)
            if data:
                self._count(data)
                self._problems.isolate(run.run.run_id, partial(consumer.feed, run.run, head.source, data))
            else:
                feed.heads.remove(head)
                head.close()
        return self._heads_of(run)

    def _count(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        self.bytes_read += len(data)
