"""The collector of logs: which runs' logs are read, what is stored of them, and how they are shown."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.redaction import label_text
from trainwarden_exporter.collectors.logs import metrics
from trainwarden_exporter.collectors.logs.packs import LogPacks
from trainwarden_exporter.collectors.logs.problems import LogProblems
from trainwarden_exporter.collectors.logs.reader import LogReader
from trainwarden_exporter.collectors.logs.run_logs import RunLogs
from trainwarden_exporter.collectors.logs.series import add_logs
from trainwarden_exporter.collectors.runs.limits import take_in_turn
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.shared_state import WatchedRun
from trainwarden_exporter.sampling.blocking_io import TIMEOUT_SECONDS, BlockingIoPool, add_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainwarden.signals.tailing.log import Searcher
    from trainwarden.signals.tailing.template import Template
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.shared_state import SharedState
    from trainwarden_exporter.core.state_folder import StateFolder

# The logs of a run that is over are read less often.
OVER_SECONDS = 15.0
PRUNE_SECONDS = 3600.0
# Signals that are shown as off.
MAX_OFF = 1000
# How often runs without a record are searched for.
SEARCH_SECONDS = 10.0


@dataclass(frozen=True)
class LogSettings:
    """The flags of the collector.

    Attributes:
        pack: of runs that name none, by name or file.
        templates: of the paths of logs outside of records.
        roots: outside of these folders nothing is read.
        host: this host's name in file names; None for every host.
        first_read: limit in bytes for the end of a log that is seen for the first time.
        max_files: limit of the number of logs; see `LogReader`.
        max_series: limit of the number of signals of all runs; each user has a share.
        max_runs: limit of the number of runs without a record.
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
    """Exports what the logs of the runs in the shared state show, and publishes it there.

    Args:
        shared: lists the runs, and takes the views of their logs.
        settings: what is read.
        state: stores offsets and findings; None to store nothing.
        now: the clock, Unix seconds.
        monotonic: the clock for pauses, which is never set.
        timeout: seconds until a run's logs count as blocked.

    Raises:
        PackError: the pack of the settings cannot be read.
    """

    name = "logs"

    def __init__(
        self,
        shared: SharedState,
        settings: LogSettings,
        state: StateFolder | None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._shared = shared
        self._settings = settings
        self._state = state
        self._now = now
        self._monotonic = monotonic
        self._problems = LogProblems()
        self._packs = LogPacks(settings.pack, settings.templates, settings.roots, self._problems)
        self._runs: dict[str, RunLogs] = {}
        self._read_at: dict[str, float] = {}
        self._reader = LogReader(
            self._packs, settings.roots, settings.max_files, shared, self._problems, timeout=timeout
        )
        self._search: BlockingIoPool[Template] = BlockingIoPool(timeout)
        self._found: dict[Template, list[str]] = {}
        self._searched_at = self._pruned_at = float("-inf")

    def collect(self) -> Iterable[Family]:
        """Read what is new in all logs, store the state, and return the families."""
        now, clock = self._now(), self._monotonic()
        self._update(clock)
        due = [run for run in self._runs.values() if self._is_due(run, clock)]
        for run in self._reader.read_round(due, list(self._runs.values()), now):
            self._read_at[run.run.run_id] = clock
            run.infer_cause()
        for blocked in self._reader.blocked:
            run_id = blocked.key.run.run_id
            self._problems.add("blocked", run_id, f"run {run_id}: {blocked.call} does not answer")
        answering = self._answering()
        self._store(answering, clock)
        self._publish(answering, clock)
        return self._families(answering, now)

    def close(self) -> None:
        """Close the logs and unlock the state."""
        for run in list(self._runs.values()):
            self._reader.forget(run)
        if self._state is not None:
            self._state.close()

    def _update(self, clock: float) -> None:
        """Take the runs from the shared state, and those without a record from the paths of logs."""
        if self._shared.runs is None:
            return  # not sampled yet
        watched = {run.run_id: run for run in self._shared.runs}
        if clock - self._searched_at >= SEARCH_SECONDS:
            most = self._settings.max_runs
            self._found |= self._search.map(self._settings.templates, lambda template: list(template.runs(most)))
            self._searched_at = clock
            for blocked in self._search.blocked:
                self._problems.add("blocked", blocked.key.text, f"{blocked.key.text}: its folders do not answer")
        for run in self._without_record():
            if run.run_id not in self._shared.others:
                watched.setdefault(run.run_id, run)
        for run_id in self._runs.keys() - watched.keys():
            self._reader.forget(self._runs.pop(run_id))
            self._read_at.pop(run_id, None)
        self._packs.begin_round(watched.values())
        for run_id, run in watched.items():
            known = self._runs.get(run_id)
            if known is not None and self._reader.is_blocked(known):
                continue
            searcher = self._packs.searcher_of(run)
            is_same = known is not None and run.owner == known.run.owner
            if known is not None and is_same and searcher in (None, known.searcher):
                known.update(run)
                continue
            if known is not None:
                # The record is another user's, names another pack, or is there only now: its logs are read for it from
                # their beginning.
                self._reader.forget(self._runs.pop(run_id))
            if searcher is not None:
                self._runs[run_id] = self._create(run, searcher, anew=known is not None)

    def _without_record(self) -> Iterable[WatchedRun]:
        """Yield the runs whose logs were found; some of them have a record as well."""
        found = itertools.chain.from_iterable(self._found.values())
        host = {"host": self._settings.host} if self._settings.host else {}
        for run_id in itertools.islice(dict.fromkeys(found), self._settings.max_runs):
            yield WatchedRun(run_id, recorded=False, values={"run_id": run_id, **host})

    def _answering(self) -> list[RunLogs]:
        """Return the runs whose logs no thread is blocked in."""
        return [run for run in self._runs.values() if not self._reader.is_blocked(run)]

    def _create(self, run: WatchedRun, searcher: Searcher, *, anew: bool) -> RunLogs:
        """Return the logs of a new run, as its stored state left them, unless they are to be read anew."""
        state, damaged = self._state.read(run.run_id) if self._state and not anew else (None, False)
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

    def _is_due(self, run: RunLogs, clock: float) -> bool:
        return not run.settled or clock - self._read_at.get(run.run.run_id, float("-inf")) >= OVER_SECONDS

    def _store(self, runs: Iterable[RunLogs], clock: float) -> None:
        """Store the state, before anything of it is shown: what was shown is never counted again."""
        if self._state is None or not self._state.hold():
            return
        for run in runs:
            if run.dirty:
                try:
                    self._state.write(run.run.run_id, run.state())
                    run.dirty = False
                except OSError as error:
                    self._problems.add("state", "", f"{error.filename} cannot be written: {error.strerror}")
        if clock - self._pruned_at > PRUNE_SECONDS:
            self._state.prune()
            self._pruned_at = clock

    def _publish(self, answering: Sequence[RunLogs], clock: float) -> None:
        # A blocked run keeps its last view.
        known = {run_id: view for run_id, view in self._shared.views.items() if run_id in self._runs}
        self._shared.views = known | {run.run.run_id: run.view(clock) for run in answering}
        self._shared.log_files = self._reader.files(list(self._runs.values()))
        self._shared.log_only = tuple(run_id for run_id, run in self._runs.items() if run.run.folder is None)

    def _families(self, runs: Iterable[RunLogs], now: float) -> list[Family]:
        families = Families()
        room, dropped = self._settings.max_series, 0

        def add(run: RunLogs, _: int) -> int:
            nonlocal room, dropped
            shown, left_out = add_logs(families, run, room, now)
            room, dropped = room - shown, dropped + left_out
            return shown

        # Where there is no room for all, each user has a share, and a user's running runs come first.
        in_order = sorted(runs, key=lambda run: (run.run.ended, run.run.run_id))
        take_in_turn(in_order, lambda run: run.owner, add)
        add_blocked(families, self.name, {each.key.run.run_id: each.call for each in self._reader.blocked})
        families.add(metrics.TRAINWARDEN_LOG_SERIES_DROPPED, dropped)
        families.add(metrics.TRAINWARDEN_LOG_READ_BYTES_TOTAL, self._reader.bytes_read)
        cut = sum(searcher.scanner.records_cut for searcher in self._packs.searchers)
        families.add(metrics.TRAINWARDEN_LOG_RECORDS_CUT_TOTAL, cut)
        for reason, count in self._problems.counts.items():
            families.add(metrics.TRAINWARDEN_LOG_ERRORS_TOTAL, count, reason=reason)
        for reason, count in self._reader.restarts.items():
            families.add(metrics.TRAINWARDEN_LOG_RESTARTS_TOTAL, count, reason=reason)
        followed = sum(len(run.logs) for run in self._runs.values())
        families.add(metrics.TRAINWARDEN_LOG_FILES, followed, outcome="followed")
        families.add(metrics.TRAINWARDEN_LOG_FILES, self._reader.dropped, outcome="dropped")
        # Packs of several users may have one name, and names of signals become one where they are cut.
        off = {(each.pack.name, name) for each in self._packs.searchers for name in each.scanner.off}
        shown = sorted({(label_text(pack), label_text(name)) for pack, name in off})
        for pack, name in shown[:MAX_OFF]:
            families.add(metrics.TRAINWARDEN_LOG_SIGNAL_OFF, 1, pack=pack, signal=name)
        return families.collected()
