"""The state that the collectors of runs, logs, transports and schedulers share.

Each collector writes and reads it from its own thread without waiting: an attribute is replaced as a whole, so that a
reader gets the old value or the new one, never a mixture.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainwarden_exporter.core.scrape_times import ScrapeTimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trainwarden.signals.progress import LogProgress
    from trainwarden_exporter.collectors.gpu.roster import NodeRoster
    from trainwarden_exporter.core.node import Node


@dataclass(frozen=True)
class WatchedRun:
    """A run whose logs are followed, as its record describes it.

    Attributes:
        folder: of the record in the runs folder; None for a record in S3 and for a run without one.
        owner: uid of the user whose record in the runs folder it is; only this user's logs are read. None for others.
        recorded: the run has a record; False where only its logs were found.
        owned: all its logs belong to this exporter; else only those whose path names this node.
        on_node: its job writes on this node, and its record, which another process writes, is another exporter's.
        attempt: identifies the attempt; empty where the record has neither a key nor a start.
        attempt_start: Unix seconds.
        ended: the attempt has ended.
        quiet: the attempt runs and has used up half of a threshold.
        values: of the placeholders in path templates.
        signals: the signal pack that the record names.
        log_path: the path template that the record names.
    """

    run_id: str
    folder: Path | None = None
    owner: int | None = None
    recorded: bool = True
    owned: bool = True
    on_node: bool = False
    attempt: str = ""
    attempt_start: float | None = None
    ended: bool = False
    quiet: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    signals: str | None = None
    log_path: str | None = None


@dataclass(frozen=True)
class LogVerdict:
    """The cause of a failure or of a silence, as found in logs; empty where unknown.

    Attributes:
        failure: slug of the taxonomy; for a signal of a user that has none, its name.
        message: the log record, and the fields that a user's signal extracts from it.
        is_users: the signal is a user's own.
    """

    error_type: str
    failure: str
    subsystem: str
    severity: str
    message: str
    hint: str
    signal: str
    role: str
    is_users: bool = False


@dataclass(frozen=True)
class LogView:
    """What the logs of one run show.

    Attributes:
        attempt: the attempt that it is about.
        settled: the attempt has ended, its logs were read to their end, and `verdict` is final.
        verdict: the cause of the failure, or of the silence of a running attempt; None if none was found.
        progress: None where the logs report none.
        moved: when the step last changed, Unix seconds.
        taken: when this view was made, by a monotonic clock.
        users_signals: the logs are searched for signals of a user.
    """

    attempt: str
    settled: bool
    verdict: LogVerdict | None
    progress: LogProgress | None
    moved: float | None
    taken: float
    users_signals: bool = False


@dataclass(frozen=True)
class LogFiles:
    """The log files of one run in the last round of the log reader.

    Attributes:
        followed: files that are read.
        unreadable: files that could not be looked at or read.
        dropped: files beyond the limit.
        blocked: the call that has not returned, and then all numbers are 0; empty if all files answer.
    """

    followed: int = 0
    unreadable: int = 0
    dropped: int = 0
    blocked: str = ""


class LogConsumer(Protocol):
    """Reads something else than signals and progress out of logs.

    The log reader calls it from its threads, for one run from one thread at a time.
    """

    def wants(self, run: WatchedRun) -> bool:
        """Return whether to feed the logs of the run, from their beginning; called once a round."""

    def feed(self, run: WatchedRun, source: str, data: bytes) -> None:
        """Take the next bytes of one of the run's logs; they may end within a line. `source` identifies the log."""


class ExpectedRuns:
    """The runs that should exist, by the source that expects them, before they have left a record. Thread-safe."""

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
        """Replace what a source without times expects: a known run keeps its time, a new one gets `now`."""
        with self._lock:
            known = self._sources.get(source, {})
            self._sources[source] = {run_id: known.get(run_id, now) for run_id in run_ids}

    def runs(self) -> dict[str, dict[str, float]]:
        """Return the expected runs: by run id, since when by source."""
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            for source, runs in sorted(self._sources.items()):
                for run_id, since in runs.items():
                    found.setdefault(run_id, {})[source] = since
        return found


class JobEnd(NamedTuple):
    """How a scheduler ended a job, as `SlurmJob.end` names it, and when, Unix seconds."""

    state: str
    time: float | None


class SharedState:
    """What the collectors of one exporter share about runs.

    Attributes:
        runs: the runs with a record here, written by the collector of runs; None before its first sample.
        owners: uid of the user whose record in the runs folder each run is; by the collector of runs.
        others: ids of runs that belong to other exporters; by the collector of runs.
        views: what the logs of each run show, by run id; by the collector of logs.
        log_files: the files of each run, by run id; by the collector of logs.
        log_only: ids of runs that have logs and no record; by the collector of logs.
        log_consumers: what else is fed by the log reader.
        expected: the runs that flags and schedulers expect.
        ended_jobs: by attempt key, how its scheduler ended the job; None where no collector reads a scheduler.
        gpus: the GPUs of each vendor and node, as `roster_of` reads them; they outlive the collectors.
        scrape_times: when scrapes come, for the collectors that are sampled as they do.
    """

    def __init__(self, scrape_times: ScrapeTimes | None = None) -> None:
        self.scrape_times = scrape_times or ScrapeTimes()
        self.runs: tuple[WatchedRun, ...] | None = None
        self.owners: Mapping[str, int] = {}
        self.others: frozenset[str] = frozenset()
        self.views: Mapping[str, LogView] = {}
        self.log_files: Mapping[str, LogFiles] = {}
        self.log_only: tuple[str, ...] = ()
        self.log_consumers: tuple[LogConsumer, ...] = ()
        self.expected = ExpectedRuns()
        self.ended_jobs: Mapping[str, JobEnd] | None = None
        self.gpus: dict[tuple[str, Node], NodeRoster] = {}

    def put_ended_jobs(self, ends: Mapping[str, JobEnd]) -> None:
        """Replace what is known of ended jobs."""
        self.ended_jobs = ends

    def add_log_consumer(self, consumer: LogConsumer) -> None:
        """Feed logs to the consumer, from the next round on."""
        self.log_consumers = (*self.log_consumers, consumer)

    def remove_log_consumer(self, consumer: LogConsumer) -> None:
        """Feed it no more; a round that has begun may still do."""
        self.log_consumers = tuple(other for other in self.log_consumers if other is not consumer)
