"""What a run's logs add to its record: a cause where the record knows only the end, progress where it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from trainwarden_exporter.collectors.runs.view import RunRecord, Verdict
    from trainwarden_exporter.core.exchange import LogVerdict, LogView, RunExchange

# A failure is shown together with its cause, if the logs are read so soon.
WAIT_SECONDS = 8.0
# What the logs said longer ago is no longer how it is: their file system may hang.
FRESH_SECONDS = 60.0
# How the process ended, and not why.
_ENDS = frozenset(("", "nonzero_exit", "killed", "crash_signal", "launcher_stop", "launcher_child", "cancelled"))


def attempt_of(record: RunRecord) -> str:
    """What tells this attempt from another: its key, else its start."""
    stated = record.metadata and (record.metadata.attempt_start_time or record.metadata.start_time)
    return record.attempt_key or (f"{stated:.0f}" if stated else "")


def says_why(verdict: Verdict) -> bool:
    """Whether a record's own verdict names a cause."""
    return verdict.failure not in _ENDS and not _is_cascade(verdict.failure)


class LogEvidence:
    """What the board says of the logs, to whom looks at records."""

    def __init__(self, board: RunExchange | None, wait: float = WAIT_SECONDS) -> None:
        self._board = board
        self._wait = wait
        self._failed: dict[str, tuple[str, float]] = {}
        self._frozen: dict[str, tuple[str, Verdict]] = {}

    def forget_others(self, run_ids: set[str]) -> None:
        """Keep nothing of runs that are gone."""
        for known in (self._failed, self._frozen):
            for run_id in known.keys() - run_ids:
                del known[run_id]

    def waits(self, record: RunRecord, own: Verdict, now: float) -> bool:
        """Whether a failed attempt's logs may still say why it failed."""
        if self._board is None or says_why(own) or self._frozen_for(record):
            return False
        view = self.view(record)
        attempt, since = self._failed.get(record.run_id, ("", 0.0))
        if attempt != attempt_of(record) or record.run_id not in self._failed:
            since = now
            self._failed[record.run_id] = (attempt_of(record), now)
        return not (view and view.settled) and now - since < self._wait

    def refined(self, record: RunRecord, own: Verdict) -> Verdict:
        """The verdict to show: the record's own where it says why, else the log's; the first one stays."""
        if known := self._frozen_for(record):
            return known
        view = self.view(record)
        found = view.verdict if view and view.settled else None
        verdict = own
        if found and not says_why(own) and _is_better(found, own):
            verdict = replace(
                own,
                error_type=found.error_type,
                failure=found.failure,
                subsystem=found.subsystem,
                severity=found.severity,
                message=found.message,
                hint=found.hint,
            )
        # Without anything that tells attempts apart the next one would get this verdict.
        if self._board is not None and attempt_of(record):
            self._frozen[record.run_id] = (attempt_of(record), verdict)
        return verdict

    def view(self, record: RunRecord) -> LogView | None:
        """What is known of the logs of the attempt that owns the record."""
        found = self._board.views.get(record.run_id) if self._board else None
        return found if found and found.attempt == attempt_of(record) else None

    def current(self, run_id: str, now: float) -> LogView | None:
        """What is known of a run's logs now."""
        found = self._board.views.get(run_id) if self._board else None
        return found if found and now - found.taken < FRESH_SECONDS else None

    def log_only(self, known: Collection[str], now: float) -> Iterator[tuple[str, LogView]]:
        """The runs of which there are logs and no folder."""
        for run_id in self._board.log_only if self._board else ():
            if run_id not in known and (view := self.current(run_id, now)):
                yield run_id, view

    def _frozen_for(self, record: RunRecord) -> Verdict | None:
        attempt, verdict = self._frozen.get(record.run_id, ("", None))
        return verdict if attempt == attempt_of(record) else None


def _is_better(found: LogVerdict, own: Verdict) -> bool:
    """Whether the log's cause says more than the record, which does not say why."""
    if found.failure == "launcher_child" or found.role == "confirmation":
        return False
    return found.failure not in _ENDS - {""} or own.failure in ("", "nonzero_exit")


def _is_cascade(failure: str) -> bool:
    return failure in FAILURES and FAILURES[failure].cascade
