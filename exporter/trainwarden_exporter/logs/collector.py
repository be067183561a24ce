"""The collector of logs: follows the logs of all runs that are this exporter's, and tells what is in them."""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.catalog import Families
from trainwarden_exporter.logs.board import WatchedRun
from trainwarden_exporter.logs.packs import LogPacks
from trainwarden_exporter.logs.problems import LogProblems
from trainwarden_exporter.logs.run import RunLogs, logs_of
from trainwarden_exporter.logs.series import add_logs
from trainwarden_exporter.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden.signals.tailing.log import TailedLog
    from trainwarden.signals.tailing.template import Template
    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.logs.state import StateFolder
    from trainwarden_exporter.metric import Family

# Of one look: a storm in one log, or a long one seen for the first time, must not keep the others waiting.
LOOK_BYTES = 32 * 2**20
LOOK_SECONDS = 2.0
# A log that nothing happens to needs no open file, and one whose run is over is looked at less often.
REST_SECONDS = 60.0
OVER_SECONDS = 15.0
PRUNE_SECONDS = 3600.0
# Runs without a record are looked for so often.
SEARCH_SECONDS = 10.0
RESTARTS = ("rotated", "truncated", "removed", "replaced")


@dataclass(frozen=True)
class LogSettings:
    """What the flags say of logs.

    Attributes:
        pack: of runs that name none, by name or file.
        templates: where more logs are than in the records.
        roots: outside of these folders nothing is read.
        host: this host's name, as it is part of file names.
        first_read: bytes read at most of the end of a log that is seen for the first time.
        max_runs: runs without a record that are looked for at most.
    """

    pack: str
    templates: tuple[Template, ...]
    roots: tuple[str, ...]
    host: str | None
    first_read: int = 64 * 2**20
    max_files: int = 1024
    max_series: int = 20000
    max_runs: int = 2000


class LogsCollector:
    """Exports what the logs of the runs on the board say, and shows it on the board.

    Args:
        board: where the runs are known from.
        settings: what is to be read.
        state: keeps offsets and findings; None to keep nothing.
        now: the clock, Unix seconds.

    Raises:
        PackError: the pack of the settings cannot be read.
    """

    name = "logs"

    def __init__(
        self, board: Board, settings: LogSettings, state: StateFolder | None, now: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._settings = settings
        self._state = state
        self._now = now
        self._problems = LogProblems()
        self._packs = LogPacks(settings.pack, settings.templates, settings.roots, self._problems)
        self._runs: dict[str, RunLogs] = {}
        self._looked: dict[str, float] = {}
        self._restarts: Counter[str] = Counter(dict.fromkeys(RESTARTS, 0))
        self._read = 0
        self._dropped_files = 0
        self._turn = 0
        self._log_only: tuple[WatchedRun, ...] = ()
        self._searched_at = -SEARCH_SECONDS
        self._pruned = 0.0

    def collect(self) -> Iterable[Family]:
        """Read what is new in all logs, keep the state, and return the families."""
        now = self._now()
        self._update(now)
        active = [run for run in self._runs.values() if self._is_due(run, now)]
        readable = self._look(active, now)
        unread = {id(each) for _, each in readable} - self._read_new(readable, now)
        for run in active:
            self._looked[run.run.run_id] = now
            # What cannot be read at all keeps nobody from judging by the rest.
            if not any(id(each) in unread for each in run.logs.values()):
                run.judge()
        self._keep(now)
        self._board.views = {run_id: run.view(now) for run_id, run in self._runs.items()}
        self._board.log_only = tuple(run_id for run_id, run in self._runs.items() if run.run.folder is None)
        return self._families(now)

    def close(self) -> None:
        """Leave the logs, and the state to whoever comes next."""
        for run in self._runs.values():
            run.close()
        if self._state is not None:
            self._state.close()

    def _update(self, now: float) -> None:
        """Take in which runs there are."""
        if self._board.runs is None:
            return  # nobody has looked yet
        watched = {run.run_id: run for run in self._board.runs}
        if now - self._searched_at >= SEARCH_SECONDS:
            self._log_only, self._searched_at = tuple(self._without_record()), now
        for run in self._log_only:
            if run.run_id not in self._board.others:
                watched.setdefault(run.run_id, run)
        for run_id in self._runs.keys() - watched.keys():
            self._runs.pop(run_id).close()
            self._looked.pop(run_id, None)
        for run_id, run in watched.items():
            if run_id in self._runs:
                self._runs[run_id].update(run)
            else:
                self._runs[run_id] = self._begin(run)

    def _without_record(self) -> Iterable[WatchedRun]:
        """Runs of which there are logs, and perhaps no more."""
        found = itertools.chain.from_iterable(template.runs() for template in self._settings.templates)
        host = {"host": self._settings.host} if self._settings.host else {}
        for run_id in itertools.islice(dict.fromkeys(found), self._settings.max_runs):
            yield WatchedRun(run_id, values={"run_id": run_id, **host})

    def _begin(self, run: WatchedRun) -> RunLogs:
        searcher = self._packs.of(run)
        state, damaged = self._state.read(run.run_id) if self._state else (None, False)
        self._problems.counts["state"] += damaged
        new = RunLogs(run, searcher, self._settings.roots, self._settings.first_read)
        if state is not None and self._state is not None:
            try:
                new.restore(state)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self._problems.counts["state"] += 1
                self._state.set_aside(run.run_id, f"cannot be used: {type(error).__name__}: {error}")
                new = RunLogs(run, searcher, self._settings.roots, self._settings.first_read)
        new.update(run)
        return new

    def _is_due(self, run: RunLogs, now: float) -> bool:
        return not run.settled or now - self._looked.get(run.run.run_id, 0.0) >= OVER_SECONDS

    def _look(self, runs: Iterable[RunLogs], now: float) -> list[tuple[RunLogs, TailedLog]]:
        """See what became of the files; returns those that may be read."""
        followed = sum(len(run.logs) for run in self._runs.values())
        self._dropped_files = 0
        readable: list[tuple[RunLogs, TailedLog]] = []
        for run in runs:
            room = self._settings.max_files - followed + len(run.logs)
            paths = logs_of(run.run, self._packs.templates(run.run, run.searcher))
            before = len(run.logs)
            self._dropped_files += run.look(paths, max(0, room), self._problems)
            followed += len(run.logs) - before
            readable += [
                (run, each)
                for each in run.logs.values()
                if self._problems.safely(each.path, functools.partial(each.poll, now))
            ]
        return readable

    def _read_new(self, readable: list[tuple[RunLogs, TailedLog]], now: float) -> set[int]:
        """Give each log a turn, again and again, until all are read or the look has done its share."""
        self._turn += 1
        start = self._turn % max(1, len(readable))
        queue = deque(readable[start:] + readable[:start])
        deadline, left = time.monotonic() + LOOK_SECONDS, LOOK_BYTES
        read_to_end: set[int] = set()
        while queue and left > 0 and time.monotonic() < deadline:
            run, each = queue.popleft()
            done = self._taken(run, each, now)
            if done:
                left -= done
                self._read += done
                queue.append((run, each))
            else:
                read_to_end.add(id(each))
                modified = each.follower.modified
                if modified is not None and now - modified > REST_SECONDS:
                    each.follower.rest()
        return read_to_end

    def _taken(self, run: RunLogs, each: TailedLog, now: float) -> int:
        done = 0

        def take() -> None:
            nonlocal done
            done = run.take(each, now)

        self._problems.safely(each.path, take)
        for reason, count in each.follower.restarts.items():
            self._restarts[reason] += count
        each.follower.restarts.clear()
        return done

    def _keep(self, now: float) -> None:
        """Before anything of it is shown: what was shown is never counted again."""
        if self._state is None:
            return
        for run in self._runs.values():
            if run.dirty:
                try:
                    self._state.write(run.run.run_id, run.state())
                    run.dirty = False
                except OSError as error:
                    self._problems.add("state", "", f"{self._state.path}: {error.strerror or error}")
        if now - self._pruned > PRUNE_SECONDS:
            self._state.prune()
            self._pruned = now

    def _families(self, now: float) -> list[Family]:
        families = Families()
        room, dropped = self._settings.max_series, 0
        # Where there is no room for all, the runs that still run come first.
        for run in sorted(self._runs.values(), key=lambda run: (run.run.ended, run.run.run_id)):
            shown, left_out = add_logs(families, run, room, now)
            room, dropped = room - shown, dropped + left_out
        families.add("trainwarden_log_series_dropped", dropped)
        families.add("trainwarden_log_read_bytes_total", self._read)
        cut = sum(searcher.scanner.records_cut for searcher in self._packs.searchers)
        families.add("trainwarden_log_records_cut_total", cut)
        for reason, count in self._problems.counts.items():
            families.add("trainwarden_log_errors_total", count, reason=reason)
        for reason, count in self._restarts.items():
            families.add("trainwarden_log_restarts_total", count, reason=reason)
        families.add("trainwarden_log_files", sum(len(run.logs) for run in self._runs.values()), outcome="followed")
        families.add("trainwarden_log_files", self._dropped_files, outcome="dropped")
        for searcher in self._packs.searchers:
            for name in searcher.scanner.off:
                families.add(
                    "trainwarden_log_signal_off", 1, pack=label_text(searcher.pack.name), signal=label_text(name)
                )
        return families.collected()
