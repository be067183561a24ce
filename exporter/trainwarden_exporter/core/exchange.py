"""What collectors know of runs and share: each writes and reads from its own thread, without waiting."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trainwarden.signals.progress import Progress


@dataclass(frozen=True)
class WatchedRun:
    """A run whose logs are to be followed, as its record has it.

    Attributes:
        folder: of the record; None where there is none, only logs.
        owned: all its logs are this exporter's; else only those that name this node.
        attempt: tells one attempt from another; empty where nothing does.
        attempt_start: Unix seconds.
        ended: the attempt has ended.
        quiet: it runs and has used up half of a threshold.
        values: what templates of paths may name.
        signals: the pack that the record asks for.
        log_path: the template that the record states.
    """

    run_id: str
    folder: Path | None = None
    owned: bool = True
    attempt: str = ""
    attempt_start: float | None = None
    ended: bool = False
    quiet: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    signals: str | None = None
    log_path: str | None = None


@dataclass(frozen=True)
class LogVerdict:
    """What a log says was the cause; empty where unknown. `message` is the record that says so."""

    error_type: str
    failure: str
    subsystem: str
    severity: str
    message: str
    hint: str
    signal: str
    role: str


@dataclass(frozen=True)
class LogView:
    """What is known from the logs of one run.

    Attributes:
        attempt: that it is about.
        settled: the attempt has ended, its logs were read to their end, and `verdict` will not change.
        verdict: the cause of the failure, or of the silence of an attempt that runs; None if there is none.
        progress: None where the logs say nothing.
        moved: when the step last changed, Unix seconds.
        taken: when this was true, Unix seconds.
    """

    attempt: str
    settled: bool
    verdict: LogVerdict | None
    progress: Progress | None
    moved: float | None
    taken: float


class ExpectedRuns:
    """Which runs should be there, by what expects them, before they have left a record. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[str, dict[str, float]] = {}

    def put(self, source: str, runs: Mapping[str, float]) -> None:
        """Replace what a source expects.

        Args:
            source: `flag`, `slurm`, `ray`, …; the value of a label.
            runs: since when each is expected, by run id; Unix seconds.
        """
        with self._lock:
            self._sources[source] = dict(runs)

    def keep(self, source: str, run_ids: Iterable[str], now: float) -> None:
        """Replace what a source expects that does not know since when: those that are new since `now`."""
        with self._lock:
            known = self._sources.get(source, {})
            self._sources[source] = {run_id: known.get(run_id, now) for run_id in run_ids}

    def runs(self) -> dict[str, dict[str, float]]:
        """Return what is expected: for each run id, since when by source."""
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            for source, runs in sorted(self._sources.items()):
                for run_id, since in runs.items():
                    found.setdefault(run_id, {})[source] = since
        return found


class RunExchange:
    """One for all collectors of an exporter.

    Attributes:
        runs: the runs that have a record here, by the collector of runs; None before its first sample.
        others: ids of runs that belong to other exporters.
        views: what the logs of each run show, by the collector of logs.
        log_only: ids of runs that have logs and no folder.
        expected: the runs that flags and schedulers expect.

    Each attribute is replaced as a whole: a reader sees the old value or the new one.
    """

    def __init__(self) -> None:
        self.runs: tuple[WatchedRun, ...] | None = None
        self.others: frozenset[str] = frozenset()
        self.views: Mapping[str, LogView] = {}
        self.log_only: tuple[str, ...] = ()
        self.expected = ExpectedRuns()
