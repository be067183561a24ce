"""The collector of logs: follows the logs of all runs that are this exporter's, and tells what is in them."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.logs import metrics
from trainwarden_exporter.collectors.logs.packs import LogPacks
from trainwarden_exporter.collectors.logs.problems import LogProblems
from trainwarden_exporter.collectors.logs.run import RunLogs
from trainwarden_exporter.collectors.logs.series import add_logs
from trainwarden_exporter.collectors.logs.turns import Turns
from trainwarden_exporter.core.exchange import WatchedRun
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool, add_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden.signals.tailing.template import Template
    from trainwarden_exporter.collectors.logs.state import StateFolder
    from trainwarden_exporter.core.exchange import RunExchange
    from trainwarden_exporter.core.metric import Family

# One whose run is over is looked at less often.
OVER_SECONDS = 15.0
PRUNE_SECONDS = 3600.0
# Runs without a record are looked for so often.
SEARCH_SECONDS = 10.0


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
        self, board: RunExchange, settings: LogSettings, state: StateFolder | None, now: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._settings = settings
        self._state = state
        self._now = now
        self._problems = LogProblems()
        self._packs = LogPacks(settings.pack, settings.templates, settings.roots, self._problems)
        self._runs: dict[str, RunLogs] = {}
        self._looked: dict[str, float] = {}
        self._turns = Turns(self._packs, settings.max_files, self._problems)
        self._search: BlockingIoPool[Template] = BlockingIoPool()
        self._found: dict[Template, list[str]] = {}
        self._searched_at = -SEARCH_SECONDS
        self._pruned = 0.0

    def collect(self) -> Iterable[Family]:
        """Read what is new in all logs, keep the state, and return the families."""
        now = self._now()
        self._update(now)
        active = [run for run in self._runs.values() if self._is_due(run, now)]
        for run in self._turns.take(active, sum(len(run.logs) for run in self._runs.values()), now):
            self._looked[run.run.run_id] = now
            run.judge()
        for each in self._turns.blocked:
            self._problems.add(
                "blocked", each.key.run.run_id, f"run {each.key.run.run_id}: {each.call} does not answer"
            )
        answering = self._answering()
        self._keep(answering, now)
        # Of the others what was seen before is all that is known.
        seen = {run_id: view for run_id, view in self._board.views.items() if run_id in self._runs}
        self._board.views = seen | {run.run.run_id: run.view(now) for run in answering}
        self._board.log_only = tuple(run_id for run_id, run in self._runs.items() if run.run.folder is None)
        return self._families(answering, now)

    def close(self) -> None:
        """Leave the logs, and the state to whoever comes next."""
        for run in self._answering():
            run.close()
        if self._state is not None:
            self._state.close()

    def _update(self, now: float) -> None:
        """Take in which runs there are."""
        if self._board.runs is None:
            return  # nobody has looked yet
        watched = {run.run_id: run for run in self._board.runs}
        if now - self._searched_at >= SEARCH_SECONDS:
            self._found |= self._search.map(self._settings.templates, lambda template: list(template.runs()))
            self._searched_at = now
            for each in self._search.blocked:
                self._problems.add("blocked", each.key.text, f"{each.key.text}: its folders do not answer")
        for run in self._without_record():
            if run.run_id not in self._board.others:
                watched.setdefault(run.run_id, run)
        for run_id in self._runs.keys() - watched.keys():
            gone = self._runs.pop(run_id)
            self._looked.pop(run_id, None)
            if not self._turns.hangs(gone):
                gone.close()
        for run_id, run in watched.items():
            known = self._runs.get(run_id)
            if known is None:
                self._runs[run_id] = self._begin(run)
            elif not self._turns.hangs(known):
                known.update(run)

    def _without_record(self) -> Iterable[WatchedRun]:
        """Runs of which there are logs, and perhaps no more."""
        found = itertools.chain.from_iterable(self._found.values())
        host = {"host": self._settings.host} if self._settings.host else {}
        for run_id in itertools.islice(dict.fromkeys(found), self._settings.max_runs):
            yield WatchedRun(run_id, values={"run_id": run_id, **host})

    def _answering(self) -> list[RunLogs]:
        """Return the runs in whose logs nobody hangs."""
        return [run for run in self._runs.values() if not self._turns.hangs(run)]

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

    def _keep(self, runs: Iterable[RunLogs], now: float) -> None:
        """Before anything of it is shown: what was shown is never counted again."""
        if self._state is None:
            return
        for run in runs:
            if run.dirty:
                try:
                    self._state.write(run.run.run_id, run.state())
                    run.dirty = False
                except OSError as error:
                    self._problems.add("state", "", f"{self._state.path}: {error.strerror or error}")
        if now - self._pruned > PRUNE_SECONDS:
            self._state.prune()
            self._pruned = now

    def _families(self, runs: Iterable[RunLogs], now: float) -> list[Family]:
        families = Families()
        room, dropped = self._settings.max_series, 0
        # Where there is no room for all, the runs that still run come first.
        for run in sorted(runs, key=lambda run: (run.run.ended, run.run.run_id)):
            shown, left_out = add_logs(families, run, room, now)
            room, dropped = room - shown, dropped + left_out
        add_blocked(families, self.name, {each.key.run.run_id: each.call for each in self._turns.blocked})
        families.add(metrics.TRAINWARDEN_LOG_SERIES_DROPPED, dropped)
        families.add(metrics.TRAINWARDEN_LOG_READ_BYTES_TOTAL, self._turns.read)
        cut = sum(searcher.scanner.records_cut for searcher in self._packs.searchers)
        families.add(metrics.TRAINWARDEN_LOG_RECORDS_CUT_TOTAL, cut)
        for reason, count in self._problems.counts.items():
            families.add(metrics.TRAINWARDEN_LOG_ERRORS_TOTAL, count, reason=reason)
        for reason, count in self._turns.restarts.items():
            families.add(metrics.TRAINWARDEN_LOG_RESTARTS_TOTAL, count, reason=reason)
        families.add(
            metrics.TRAINWARDEN_LOG_FILES, sum(len(run.logs) for run in self._runs.values()), outcome="followed"
        )
        families.add(metrics.TRAINWARDEN_LOG_FILES, self._turns.dropped, outcome="dropped")
        for searcher in self._packs.searchers:
            for name in searcher.scanner.off:
                families.add(
                    metrics.TRAINWARDEN_LOG_SIGNAL_OFF, 1, pack=label_text(searcher.pack.name), signal=label_text(name)
                )
        return families.collected()
