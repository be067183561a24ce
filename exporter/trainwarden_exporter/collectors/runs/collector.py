"""The collector of run records: every run that belongs to this exporter."""

from __future__ import annotations

import operator
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.attempts import AttemptDurations, StateChangeLog
from trainwarden_exporter.collectors.runs.checkpoints import CheckpointVerifier
from trainwarden_exporter.collectors.runs.copies import CopiedRunFolder
from trainwarden_exporter.collectors.runs.discovery import RunDiscovery
from trainwarden_exporter.collectors.runs.documents import NODE
from trainwarden_exporter.collectors.runs.filesystems import RunFilesystems
from trainwarden_exporter.collectors.runs.last_line import NEEDED
from trainwarden_exporter.collectors.runs.limits import (
    BYTES,
    DEFAULT_LIMITS,
    FOLDERS,
    RANKS,
    REASONS,
    RUNS,
    SERIES,
    RunLimits,
    all_fit,
    fair_order,
    series_of_ranks,
    share_series,
    weight_of,
)
from trainwarden_exporter.collectors.runs.log_evidence import LogEvidence, is_training_by_log, watched_run
from trainwarden_exporter.collectors.runs.problems import RecordProblems
from trainwarden_exporter.collectors.runs.rank_processes import RankProcesses
from trainwarden_exporter.collectors.runs.record import RunRecord, is_quiet
from trainwarden_exporter.collectors.runs.scheduler_end import SchedulerEnds
from trainwarden_exporter.collectors.runs.series import (
    add_ages,
    add_expected,
    add_failure_message,
    add_hosts,
    add_liveness,
    add_log_only,
    add_log_progress,
    add_missing_ranks,
    add_place,
    add_progress,
    add_rank_place,
    add_ranks,
    add_rivals,
    add_settings,
    add_silent_ranks,
    add_verdict,
    progress_line,
    settings_of,
)
from trainwarden_exporter.core.memory import release_free_memory
from trainwarden_exporter.core.metric import CachedSamples, Families
from trainwarden_exporter.core.owned_folder import ReadBudget
from trainwarden_exporter.sampling.blocking_io import TIMEOUT_SECONDS, add_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainwarden.record.rank import RankBeat
    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.discovery import DiscoveredRun
    from trainwarden_exporter.collectors.runs.folder import RunFolder
    from trainwarden_exporter.collectors.runs.record import FailureVerdict
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.shared_state import SharedState

_PLACE = operator.attrgetter("rank", "host", "gpu", "uuid", "gpu_taken_bytes", "pid")
# In which texts of one user are made labels in one sample.
TEXT_MICROSECONDS = 500_000
# After so many bytes of records much of the memory that was needed for them is free: to give it back takes some ms.
MUCH_READ = 2**20
EXPORTED, OTHER_HOST, EXPIRED, DROPPED = "exported", "other_host", "expired", "dropped"
OUTCOMES = (EXPORTED, OTHER_HOST, EXPIRED, DROPPED)


class RunsCollector:
    """Exports the runs below `path`, and those that were copied from S3.

    Args:
        path: the runs folder; need not exist yet.
        shared: takes the runs whose logs are followed; has the views of their logs, and the expected runs.
        host: this host's name in records.
        all_hosts: export every run and rank, not only those of `host`; records in `path` without a host always are.
        limit: how many runs at most; of each user those that run, with the latest sign of life, come first.
        limits: the others.
        last_line: when the last lines of logs are shown: NEEDED, ALWAYS or NEVER.
        defaults: thresholds of records that state none.
        logs_followed: the collector of logs runs.
        copies: folders with copies of records in S3.
        s3_interval: after how many seconds these records are looked at again.
        checkpoints: verifies the last checkpoint of each run.
        now: the clock, Unix seconds.
        monotonic: the clock for pauses, which is never set.
        timeout: seconds until a run's folder counts as blocked.
        procfs: where the processes of ranks are looked at.
        filesystems: asks the file systems under the runs.
    """

    name = "runs"

    def __init__(
        self,
        path: Path,
        shared: SharedState,
        *,
        host: str,
        all_hosts: bool,
        limit: int,
        defaults: Thresholds,
        limits: RunLimits = DEFAULT_LIMITS,
        last_line: str = NEEDED,
        logs_followed: bool = False,
        copies: Sequence[Path] = (),
        s3_interval: float = 0.0,
        checkpoints: CheckpointVerifier | None = None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        timeout: float = TIMEOUT_SECONDS,
        procfs: Path = Path("/proc"),
        filesystems: RunFilesystems | None = None,
    ) -> None:
        self._path = path
        self._shared = shared
        self._host = host
        self._all_hosts = all_hosts
        self._limits = replace(limits, runs=limit)
        self._defaults = defaults
        self._logs_followed = logs_followed
        self._s3_interval = s3_interval
        self._checkpoints = checkpoints or CheckpointVerifier()
        self._now = now
        self._problems = RecordProblems()
        self._discovery = RunDiscovery(
            path,
            copies,
            defaults,
            self._problems,
            timeout,
            last_line,
            self._limits,
            None if all_hosts else host,
            monotonic=monotonic,
        )
        self._evidence = LogEvidence(shared, logs_followed=logs_followed, monotonic=monotonic)
        self._ends = SchedulerEnds(shared)
        self._state_changes = StateChangeLog()
        self._durations = AttemptDurations(now())
        self._processes = RankProcesses(procfs, host)
        self._filesystems = filesystems or RunFilesystems(path)
        self._text_budget = ReadBudget(TEXT_MICROSECONDS)

    def collect(self) -> Iterable[Family]:
        """Return the families of all runs; raise `OSError` if the runs folder exists and cannot be read."""
        now = self._now()
        self._problems.begin()
        self._text_budget.begin()
        families, outcomes = Families(), Counter(dict.fromkeys(OUTCOMES, 0))
        found = self._discovery.discover(now)
        self._shared.owners = {each.folder.run_id: each.folder.owner for each in found if not each.copied}
        mine = [
            each
            for each in found
            if self._owns_run(each) or self._owns_ranks(each.record) or self._job_user(each) is not None
        ]
        outcomes[EXPIRED] = self._discovery.expired
        outcomes[OTHER_HOST], outcomes[DROPPED] = len(found) - len(mine), max(0, len(mine) - self._limits.runs)
        heaviest = max(map(_weight_of, mine), default=1)
        if all_fit(len(mine), self._discovery.rank_series, self._limits, heaviest):
            granted, without = [(each, True) for each in mine], 0
        else:
            mine = fair_order(mine, _owner_of, lambda each: each.record.precedence(now))[: self._limits.runs]
            granted, without = share_series(mine, _owner_of, self._series_of_ranks, self._limits, _weight_of)
        outcomes[DROPPED] += without
        left_out = Counter({FOLDERS: self._discovery.left_out, RUNS: outcomes[DROPPED] - without})
        left_out.update({SERIES: without, BYTES: self._discovery.unread})
        if len(granted) < len(found):
            shown = {each.folder for each, _ in granted}
            for each in found:
                if each.folder not in shown:
                    each.folder.forget_samples()
        for each, with_ranks in granted:
            each.folder.shows_ranks = with_ranks
            left_out.update(each.folder.left_out | (set() if with_ranks else {RANKS}))
        mine = sorted((each for each, _ in granted), key=lambda each: each.folder.run_id)
        self._publish(mine, now)
        self._filesystems.ask((each.folder.owner, each.record) for each in mine if self._has_files(each))
        ranks = [self._ranks(each.folder, each.record) for each in mine]
        self._processes.look(beat for own in ranks for beat in own if beat.pid)
        for each, own in zip(mine, ranks, strict=True):
            with self._problems.isolated(each.folder.run_id):
                self._add(families, each, own, now)
                outcomes[EXPORTED] += 1
        log_only = dict(self._evidence.log_only_views(self._discovery.known))
        for run_id, view in log_only.items():
            add_log_only(families, run_id, view)
        self._add_expected(families, log_only.keys(), now)
        self._durations.add(families)
        add_blocked(families, self.name, {each.key.run_id: each.call for each in self._discovery.blocked})
        for outcome in OUTCOMES:
            families.add(metrics.TRAINWARDEN_RUNS, outcomes[outcome], outcome=outcome)
        for reason in REASONS:
            families.add(metrics.TRAINWARDEN_RUNS_LEFT_OUT, left_out[reason], reason=reason)
        self._problems.report(families, self._discovery.owners)
        if self._discovery.bytes_read > MUCH_READ:
            release_free_memory()
        return families.collected()

    def _add(self, families: Families, run: DiscoveredRun, ranks: Sequence[RankBeat], now: float) -> None:
        folder, record = run.folder, run.record
        if not self._owns_run(run):
            _add_ranks(families, folder, ranks, now)
            self._add_rank_places(families, folder, ranks)
            add_silent_ranks(families, record, ranks, now)
            return
        verdict = folder.verdict(record)
        awaited = verdict is not None and self._ends.is_awaited(record, verdict, now)
        if verdict:
            record, verdict = self._ends.applied(record, verdict)
        if not awaited:
            self._durations.observe(record, now)
        if verdict and (awaited or self._evidence.is_awaited(record, verdict)):
            # The failure is shown together with its cause, so that the alert keeps one name; until then as before.
            if folder.shown is None or folder.shown.attempt_key != record.attempt_key:
                _add_ranks(families, folder, ranks, now)
                self._add_rank_places(families, folder, ranks)
                return
            record, verdict = folder.shown, None
            ranks = self._ranks(folder, record)
        folder.shown = record
        view = self._evidence.current_view(record.run_id)
        if is_training_by_log(record, view):
            record = replace(record, from_logs=True)
        self._state_changes.observe(record, folder.owner, now)
        logged = view.moved if view and view.progress and not record.has_progress else None
        self._add_cached(families, folder, record, ranks, logged, now)
        if self._has_files(run):
            self._filesystems.add(families, record)
        add_ages(families, record, folder.observed, now, self._s3_interval)
        add_place(families, record.run_id, folder.s3_place)
        add_rivals(families, record.run_id, folder.rivals)
        add_log_progress(families, record, view, now)
        if verdict:
            verdict = self._evidence.refine(record, verdict)
            last_line = folder.last_line or progress_line(record)
            self._add_texts(families, folder, record, verdict, (verdict.message, last_line, verdict.hint), now)
        else:
            quiet = is_quiet(record, folder.steps(record, now).advanced, now)
            cause = view.verdict if view and quiet else None
            message, hint = (cause.message, cause.hint) if cause else ("", "")
            last_line = folder.last_line or (progress_line(record) if quiet else None)
            self._add_texts(families, folder, record, None, (message, last_line, hint), now)

    def _add_texts(
        self,
        families: Families,
        folder: RunFolder,
        record: RunRecord,
        verdict: FailureVerdict | None,
        texts: tuple[str, str | None, str],
        now: float,
    ) -> None:
        """Add the failure, and the message, the last line of the log and the hint.

        To look for secrets in a text takes a millisecond and more: it is done when the text changes, and for one user
        for so long in a sample. Until then what was shown stays, unless it is of another attempt or state.
        """
        of, made_from = (record.state, record.attempt_key), (verdict, texts)
        known = folder.cached_texts
        if known is None or known[0] != of or known[1].made_from != made_from:
            if self._text_budget.take(folder.owner, 0):
                began = time.monotonic()
                own = Families()
                if verdict is not None:
                    add_verdict(own, record.run_id, verdict, now)
                add_failure_message(own, record.run_id, *texts)
                known = folder.cached_texts = of, CachedSamples(made_from, own.columns())
                self._text_budget.take(folder.owner, round(1e6 * (time.monotonic() - began)))
            elif known is not None and known[0] != of:
                known = folder.cached_texts = None
        if known is not None:
            families.extend(known[1].columns)

    def _add_cached(
        self,
        families: Families,
        folder: RunFolder,
        record: RunRecord,
        ranks: Sequence[RankBeat],
        logged: float | None,
        now: float,
    ) -> None:
        """Add the samples that change only with the record.

        Most records are the same object as in the last sample, and of a run that trains only its progress is another.
        """
        steps = folder.steps(record, now)
        complete = self._checkpoints.is_complete(record, None if isinstance(folder, CopiedRunFolder) else folder.owner)
        # The steps first: of a run that trains they are others, and a record takes long to compare.
        made_from = (steps, logged, complete, folder.shows_ranks, record)
        if folder.cached is None or folder.cached.made_from != made_from:
            # Of a run that trains each sample is made from another state: what is made from one twice is kept.
            is_kept, folder.made_from = folder.made_from == made_from, made_from
            own = Families() if is_kept else families
            _add_ranks(own, folder, ranks, now)
            add_progress(own, record, steps, now)
            add_liveness(own, record, ranks, steps, logged, now)
            add_missing_ranks(own, record)
            own.add(metrics.TRAINING_CHECKPOINT_COMPLETE, complete, run_id=record.run_id)
            folder.cached = CachedSamples(made_from, own.columns()) if is_kept else None
            settings = settings_of(record)
            if folder.cached_settings is None or folder.cached_settings.made_from != settings:
                own = Families()
                add_settings(own, record)
                folder.cached_settings = CachedSamples(settings, own.columns())
        if folder.cached is not None:
            families.extend(folder.cached.columns)
        if folder.cached_settings is not None:
            families.extend(folder.cached_settings.columns)
        self._add_rank_places(families, folder, ranks)
        if record.state == "running":
            add_silent_ranks(families, record, ranks, now)

    def _add_rank_places(self, families: Families, folder: RunFolder, ranks: Sequence[RankBeat]) -> None:
        """Add what seldom changes of the ranks, though each beat is another object."""
        places = [(*_PLACE(beat), self._processes.state(beat) if beat.pid else None) for beat in ranks]
        if folder.cached_places is None or folder.cached_places.made_from != places:
            own = Families()
            for beat, place in zip(ranks, places, strict=True):
                add_rank_place(own, folder.run_id, beat, place[-1])
            folder.cached_places = CachedSamples(places, own.columns())
        families.extend(folder.cached_places.columns)

    def _ranks(self, folder: RunFolder, record: RunRecord) -> list[RankBeat]:
        """Return the ranks that are exported."""
        if not folder.shows_ranks:
            return []
        return [beat for beat in record.current_ranks if self._all_hosts or beat.host in (None, self._host)]

    def _add_expected(self, families: Families, log_only: Iterable[str], now: float) -> None:
        """Add the expected runs that have neither a record nor logs."""
        there = self._discovery.known | set(log_only)
        for run_id, sources in self._shared.expected.runs().items():
            if run_id not in there:
                record = RunRecord(run_id, min(sources.values()), self._defaults)
                add_expected(families, record, sources, now)

    def _publish(self, mine: list[DiscoveredRun], now: float) -> None:
        """Forget the runs that are gone, and put the others in the shared state if their logs are followed."""
        run_ids = {each.folder.run_id for each in mine}
        self._evidence.keep_only(run_ids)
        self._state_changes.keep_only(run_ids)
        # One that leaves the page for a while, because others take its place, is not counted again.
        self._durations.keep_only(set(self._discovery.known))
        self._checkpoints.keep_only(run_ids)
        if not self._logs_followed:
            return
        self._shared.others = self._discovery.known - run_ids
        host = None if self._all_hosts else self._host
        self._shared.runs = tuple(
            watched_run(
                each.record,
                # Only the end of a log in S3 is copied, again and again: it is no file that grows.
                None if each.copied else self._path / each.folder.run_id,
                user if (user := self._job_user(each)) is not None else each.folder.owner,
                owned=self._owns_run(each),
                on_node=user is not None,
                host=host,
                steps=each.folder.steps(each.record, now),
                now=now,
            )
            for each in mine
        )

    def _job_user(self, run: DiscoveredRun) -> int | None:
        """Return whose job writes its output on this node, where another exporter has its record; None of any other.

        Root and this process's own user alone may state whose job a record is about that they write.
        """
        metadata = run.record.metadata
        if metadata is None or run.copied or run.folder.owner not in (0, os.geteuid()) or self._owns_run(run):
            return None
        batch = metadata.environment.get(NODE, "").partition(".")[0]
        return metadata.user_id if batch and batch == self._host.partition(".")[0] else None

    def _series_of_ranks(self, run: DiscoveredRun) -> int:
        """Return how many series of ranks would be exported, at most."""
        return series_of_ranks(
            [beat for beat in run.record.ranks if self._all_hosts or beat.host in (None, self._host)]
        )

    def _owns_run(self, run: DiscoveredRun) -> bool:
        host = run.record.metadata.host if run.record.metadata else None
        if run.copied and host is None:
            return self._all_hosts  # every exporter sees the records in S3
        return not run.record.node_only and self._owns(host)

    def _has_files(self, run: DiscoveredRun) -> bool:
        """Return whether the run writes to file systems of this host; of a record in S3 they are another's."""
        return not run.copied and self._owns_run(run)

    def _owns_ranks(self, record: RunRecord) -> bool:
        return any(self._owns(beat.host) for beat in record.current_ranks)

    def _owns(self, host: str | None) -> bool:
        return self._all_hosts or host is None or host == self._host


def _add_ranks(families: Families, folder: RunFolder, ranks: Sequence[RankBeat], now: float) -> None:
    add_ranks(families, ranks, folder.labels_of(ranks), now)
    add_hosts(families, folder.run_id, ranks, now)


def _owner_of(run: DiscoveredRun) -> int:
    return run.folder.owner


def _weight_of(run: DiscoveredRun) -> int:
    return weight_of(run.folder.run_id, run.record.ranks)
