"""The collector of run records: every run that is this exporter's to tell of."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.logs.progress import add_log_only, add_log_progress, is_under_way
from trainwarden_exporter.collectors.logs.verdict import LogEvidence
from trainwarden_exporter.collectors.logs.watch import watched
from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.durations import Durations
from trainwarden_exporter.collectors.runs.folder import CachedSamples
from trainwarden_exporter.collectors.runs.problems import Problems
from trainwarden_exporter.collectors.runs.series import (
    add_ages,
    add_expected,
    add_last_words,
    add_rank,
    add_run,
    add_verdict,
)
from trainwarden_exporter.collectors.runs.sources import Found, Sources
from trainwarden_exporter.collectors.runs.transitions import Transitions
from trainwarden_exporter.collectors.runs.view import RunRecord, is_quiet, last_sign
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.blocking_io import add_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.folder import RunFolder
    from trainwarden_exporter.collectors.runs.proofs import Proofs
    from trainwarden_exporter.core.exchange import ExpectedRuns, RunExchange
    from trainwarden_exporter.core.metric import Family

EXPORTED, OTHER_HOST, EXPIRED, DROPPED = "exported", "other_host", "expired", "dropped"
OUTCOMES = (EXPORTED, OTHER_HOST, EXPIRED, DROPPED)


class RunsCollector:
    """Exports the runs below `path`, and those that were copied from S3.

    Args:
        path: the runs folder; need not exist yet.
        host: this host's name in records.
        all_hosts: export every run and rank, not only those of `host`; records in `path` that name no host always are.
        limit: how many runs at most, those with the latest sign of life.
        defaults: thresholds of records that state none.
        board: where the collector of logs learns of the runs, and tells what it has read; None where there is none.
        places: folders with copies of records in S3.
        expected: which runs should be there; None where nobody says.
        proofs: what is known of checkpoints; None to tell nothing of them.
        now: the clock, Unix seconds.
    """

    name = "runs"

    def __init__(
        self,
        path: Path,
        *,
        host: str,
        all_hosts: bool,
        limit: int,
        defaults: Thresholds,
        board: RunExchange | None = None,
        places: Sequence[Path] = (),
        expected: ExpectedRuns | None = None,
        proofs: Proofs | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._host = host
        self._all_hosts = all_hosts
        self._limit = limit
        self._defaults = defaults
        self._board = board
        self._expected = expected
        self._proofs = proofs
        self._now = now
        self._problems = Problems()
        self._sources = Sources(path, places, defaults, self._problems)
        self._evidence = LogEvidence(board)
        self._transitions = Transitions()
        self._durations = Durations(now())

    def collect(self) -> Iterable[Family]:
        """Return the families of all runs; raises `OSError` if the runs folder is there and cannot be read."""
        now = self._now()
        self._problems.begin()
        families, outcomes = Families(), Counter(dict.fromkeys(OUTCOMES, 0))
        found = self._sources.look(now)
        mine = [each for each in found if self._owns_run(each) or self._owns_ranks(each.record)]
        mine.sort(key=lambda each: last_sign(each.record, now), reverse=True)
        outcomes[EXPIRED] = self._sources.asleep
        outcomes[OTHER_HOST], outcomes[DROPPED] = len(found) - len(mine), len(mine[self._limit :])
        mine = sorted(mine[: self._limit], key=lambda each: each.folder.run_id)
        self._tell(mine, now)
        for each in mine:
            with self._problems.isolated(each.folder.run_id):
                self._add(families, each, now)
                outcomes[EXPORTED] += 1
        logged = dict(self._evidence.log_only(self._sources.known, now))
        for view in logged.items():
            add_log_only(families, *view)
        self._add_expected(families, logged.keys(), now)
        self._durations.add(families)
        add_blocked(families, self.name, {each.key.run_id: each.call for each in self._sources.blocked})
        for outcome in OUTCOMES:
            families.add(metrics.TRAINWARDEN_RUNS, outcomes[outcome], outcome=outcome)
        self._problems.tell(families)
        return families.collected()

    def _add(self, families: Families, found: Found, now: float) -> None:
        folder, record = found.folder, found.record
        if not self._owns_run(found):
            self._add_ranks(families, record, now)
            return
        self._durations.observe(record)
        cause = folder.verdict(record)
        if cause and self._evidence.waits(record, cause, now):
            # Shown together with its cause, so that the alert has one name from the beginning. Until then: as before.
            if folder.shown is None or folder.shown.attempt_key != record.attempt_key:
                self._add_ranks(families, record, now)
                return
            record, cause = folder.shown, None
        folder.shown = record
        view = self._evidence.current(record.run_id, now)
        if is_under_way(record, view):
            record = replace(record, from_logs=True)
        self._transitions.observe(record)
        self._add_sheet(families, folder, record, now)
        add_ages(families, record, folder.observed, now)
        add_log_progress(families, record, view, now)
        if cause:
            verdict = self._evidence.refined(record, cause)
            add_verdict(families, record.run_id, verdict, now)
            add_last_words(families, record.run_id, verdict.message, folder.last_words, verdict.hint)
        elif is_quiet(record, folder.steps(record, now).advanced, now):
            said = view.verdict if view else None
            message, hint = (said.message, said.hint) if said else ("", "")
            add_last_words(families, record.run_id, message, folder.last_words, hint)

    def _add_sheet(self, families: Families, folder: RunFolder, record: RunRecord, now: float) -> None:
        """Add what stays as it is until the record changes: made once, for most records do not change between looks."""
        steps = folder.steps(record, now)
        complete = self._proofs.complete(record) if self._proofs else None
        if folder.sheet is None or not folder.sheet.is_of(record, steps, complete):
            sheet = Families()
            self._add_ranks(sheet, record, now)
            add_run(sheet, record, steps, now)
            sheet.add(metrics.TRAINING_CHECKPOINT_COMPLETE, complete, run_id=record.run_id)
            folder.sheet = CachedSamples(record, steps, complete, sheet.rows())
        families.extend(folder.sheet.rows)

    def _add_ranks(self, families: Families, record: RunRecord, now: float) -> None:
        for beat in record.current_ranks:
            if self._owns(beat.host):
                add_rank(families, record.run_id, beat, now)

    def _add_expected(self, families: Families, logged: Iterable[str], now: float) -> None:
        """Runs that should be there and of which nothing is."""
        there = self._sources.known | set(logged)
        for run_id, sources in self._expected.runs().items() if self._expected else ():
            if run_id not in there:
                record = RunRecord(run_id, min(sources.values()), self._defaults)
                add_expected(families, record, sources, now)

    def _tell(self, mine: list[Found], now: float) -> None:
        """Let the collector of logs know which runs there are."""
        run_ids = {each.folder.run_id for each in mine}
        for known in (self._evidence, self._transitions, self._durations, self._proofs):
            if known is not None:
                known.forget_others(run_ids)
        if self._board is None:
            return
        self._board.others = self._sources.known - run_ids
        host = None if self._all_hosts else self._host
        self._board.runs = tuple(
            watched(
                each.record,
                # Of a log in S3 only the end is copied, and that again and again: it is not one that grows.
                None if each.copied else self._path / each.folder.run_id,
                owned=self._owns_run(each),
                host=host,
                steps=each.folder.steps(each.record, now),
                now=now,
            )
            for each in mine
        )

    def _owns_run(self, found: Found) -> bool:
        host = found.record.metadata.host if found.record.metadata else None
        if found.copied and host is None:
            return self._all_hosts  # every exporter sees what is in S3
        return not found.record.node_only and self._owns(host)

    def _owns_ranks(self, record: RunRecord) -> bool:
        return any(self._owns(beat.host) for beat in record.current_ranks)

    def _owns(self, host: str | None) -> bool:
        return self._all_hosts or host is None or host == self._host
