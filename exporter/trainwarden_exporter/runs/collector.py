"""The collector of run records: every run of one folder that is this exporter's to tell of."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.catalog import Families
from trainwarden_exporter.logs.progress import add_log_only, add_log_progress, is_under_way
from trainwarden_exporter.logs.verdict import LogEvidence
from trainwarden_exporter.logs.watch import watched
from trainwarden_exporter.redaction import plain
from trainwarden_exporter.runs.folder import UNEXPECTED, UNREADABLE, Problem, RunFolder
from trainwarden_exporter.runs.series import add_last_words, add_rank, add_run, add_verdict
from trainwarden_exporter.runs.transitions import Transitions
from trainwarden_exporter.runs.view import KEPT_SECONDS, is_quiet, last_sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.metric import Family
    from trainwarden_exporter.runs.view import RunRecord

log = logging.getLogger(__name__)

INVALID_NAME, INTERNAL = "invalid_run_id", "internal"
REASONS = (INVALID_NAME, UNREADABLE, UNEXPECTED, INTERNAL)
EXPORTED, OTHER_HOST, EXPIRED, DROPPED = "exported", "other_host", "expired", "dropped"
OUTCOMES = (EXPORTED, OTHER_HOST, EXPIRED, DROPPED)
# An expired record may come to life again, but thousands of them need not be looked at each time.
ASLEEP_SECONDS = 15.0
LOGGED_AT_ONCE = 20


class RunsCollector:
    """Exports the runs below `path`.

    Args:
        path: the runs folder; need not exist yet.
        host: this host's name in records.
        all_hosts: export every run and rank, not only those of `host`; records that name no host always are.
        limit: how many runs at most, those with the latest sign of life.
        defaults: thresholds of records that state none.
        board: where the collector of logs learns of the runs, and tells what it has read; None where there is none.
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
        board: Board | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._host = host
        self._all_hosts = all_hosts
        self._limit = limit
        self._defaults = defaults
        self._board = board
        self._evidence = LogEvidence(board)
        self._transitions = Transitions()
        self._now = now
        self._folders: dict[str, RunFolder] = {}
        self._problems: list[Problem] = []
        self._logged: set[tuple[str, str]] = set()

    def collect(self) -> Iterable[Family]:
        """Return the families of all runs; raises `OSError` if the runs folder is there and cannot be read."""
        now = self._now()
        self._problems.clear()
        families, outcomes = Families(), Counter(dict.fromkeys(OUTCOMES, 0))
        names = self._names()
        self._folders = {
            name: self._folders.get(name) or RunFolder(self._path / name, self._defaults) for name in names
        }
        mine: list[tuple[RunFolder, RunRecord]] = []
        for folder in self._folders.values():
            record = self._look(folder, now)
            if record is None:
                outcomes[EXPIRED] += folder.asleep_until > now
            elif self._owns_run(record) or any(self._owns(beat.host) for beat in record.current_ranks):
                mine.append((folder, record))
            else:
                outcomes[OTHER_HOST] += 1
        mine.sort(key=lambda found: last_sign(found[1], now), reverse=True)
        outcomes[DROPPED] = len(mine[self._limit :])
        mine = sorted(mine[: self._limit], key=lambda found: found[0].run_id)
        self._tell(mine, now)
        for folder, record in mine:
            with self._isolated(folder):
                self._add(families, folder, record, now)
                outcomes[EXPORTED] += 1
        for view in self._evidence.log_only(self._folders.keys(), now):
            add_log_only(families, *view)
        self._add_own(families, outcomes)
        self._log_new_problems()
        return families.collected()

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._path) as entries:
                found = sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry))
        except FileNotFoundError:
            return []
        names = []
        for name in found:
            try:
                names.append(check_run_id(name))
            except InvalidRunId as error:  # noqa: PERF203  # rare
                self._problems.append(Problem(INVALID_NAME, name, str(error)))
        return names

    def _look(self, folder: RunFolder, now: float) -> RunRecord | None:
        """Read one run; None if it has expired or cannot be read."""
        if now < folder.asleep_until:
            return None
        record = None
        with self._isolated(folder):
            found = folder.read(now)
            if now - last_sign(found, now) > KEPT_SECONDS:
                folder.asleep_until = now + ASLEEP_SECONDS
            else:
                self._problems += folder.problems
                record = found
        return record

    @contextlib.contextmanager
    def _isolated(self, folder: RunFolder) -> Iterator[None]:
        """Let no record, however odd, cost the others theirs."""
        try:
            yield
        except FileNotFoundError:
            log.debug("run %s was removed while it was read", folder.run_id)
        except OSError as error:
            self._problems.append(Problem(UNREADABLE, folder.run_id, str(error)))
        except Exception as error:
            log.debug("run %s", folder.run_id, exc_info=True)
            self._problems.append(Problem(INTERNAL, folder.run_id, f"{type(error).__name__}: {error}"))

    def _add(self, families: Families, folder: RunFolder, record: RunRecord, now: float) -> None:
        for beat in record.current_ranks:
            if self._owns(beat.host):
                add_rank(families, record.run_id, beat, now)
        if not self._owns_run(record):
            return
        found = folder.verdict(record)
        if found and self._evidence.waits(record, found, now):
            # Shown together with its cause, so that the alert has one name from the beginning. Until then: as before.
            if folder.shown is None or folder.shown.attempt_key != record.attempt_key:
                return
            record, found = folder.shown, None
        folder.shown = record
        view = self._evidence.current(record.run_id, now)
        if is_under_way(record, view):
            record = replace(record, from_logs=True)
        self._transitions.observe(record)
        steps = folder.steps(record, now)
        add_run(families, record, steps, now)
        add_log_progress(families, record, view, now)
        if found:
            verdict = self._evidence.refined(record, found)
            add_verdict(families, record.run_id, verdict, now)
            add_last_words(families, record.run_id, verdict.message, folder.last_line(), verdict.hint)
        elif is_quiet(record, steps.advanced, now):
            cause = view.verdict if view else None
            message, hint = (cause.message, cause.hint) if cause else ("", "")
            add_last_words(families, record.run_id, message, folder.last_line(), hint)

    def _tell(self, mine: list[tuple[RunFolder, RunRecord]], now: float) -> None:
        """Let the collector of logs know which runs there are."""
        run_ids = {folder.run_id for folder, _ in mine}
        self._evidence.forget_others(run_ids)
        self._transitions.forget_others(run_ids)
        if self._board is None:
            return
        self._board.others = frozenset(self._folders.keys() - run_ids)
        host = None if self._all_hosts else self._host
        self._board.runs = tuple(
            watched(
                record,
                self._path / folder.run_id,
                owned=self._owns_run(record),
                host=host,
                steps=folder.steps(record, now),
                now=now,
            )
            for folder, record in mine
        )

    def _owns_run(self, record: RunRecord) -> bool:
        return not record.node_only and self._owns(record.metadata.host if record.metadata else None)

    def _owns(self, host: str | None) -> bool:
        return self._all_hosts or host is None or host == self._host

    def _add_own(self, families: Families, outcomes: Counter[str]) -> None:
        for outcome in OUTCOMES:
            families.add("trainwarden_runs", outcomes[outcome], outcome=outcome)
        reasons = Counter(problem.reason for problem in self._problems)
        for reason in REASONS:
            families.add("trainwarden_runs_unreadable", reasons[reason], reason=reason)

    def _log_new_problems(self) -> None:
        """Name the first problem of each kind and folder, once: a value that changes with every step is one problem."""
        first: dict[tuple[str, str], Problem] = {}
        for problem in self._problems:
            first.setdefault((problem.reason, problem.folder), problem)
        new = [problem for key, problem in first.items() if key not in self._logged]
        for problem in new[:LOGGED_AT_ONCE]:
            log.warning("%s", plain(f"run {problem.folder}: {problem.reason}: {problem.text}")[:500])
        if len(new) > LOGGED_AT_ONCE:
            log.warning("and %d more runs with something that cannot be used", len(new) - LOGGED_AT_ONCE)
        self._logged = set(first)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False
