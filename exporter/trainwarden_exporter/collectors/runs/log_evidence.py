"""What a run and its logs give each other: the log reader gets the run, the record gets a cause and progress."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.failures.judge import UNKNOWN
from trainwarden.failures.records import cause_in
from trainwarden.record.store import UNKNOWN_END
from trainwarden.taxonomy import FAILURES
from trainwarden_exporter.collectors.runs.documents import PLACEHOLDERS
from trainwarden_exporter.collectors.runs.record import ENDED, is_quiet
from trainwarden_exporter.core.scrape_times import LONGEST_SECONDS
from trainwarden_exporter.core.shared_state import LogVerdict, WatchedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from trainwarden_exporter.collectors.runs.record import FailureVerdict, RunRecord, StepTimes
    from trainwarden_exporter.core.shared_state import LogView, SharedState

# A failure is shown together with its cause if the logs are read within this time.
WAIT_SECONDS = 8.0
# An older view may be out of date: the file system of the logs may hang. Two samples may be a minute apart.
FRESH_SECONDS = LONGEST_SECONDS + 30.0
_MESSAGE = 400
# Failures that state how the process ended, and not why.
_ENDS = frozenset(
    ("", "nonzero_exit", "killed", "crash_signal", "launcher_stop", "launcher_child", "cancelled", UNKNOWN_END)
)


def attempt_id(record: RunRecord) -> str:
    """Return what identifies the attempt: its key, else its start; empty if the record has neither."""
    stated = record.metadata and (record.metadata.attempt_start_time or record.metadata.start_time)
    return record.attempt_key or (f"{stated:.0f}" if stated else "")


def watched_run(
    record: RunRecord,
    folder: Path | None,
    owner: int,
    *,
    owned: bool,
    on_node: bool,
    host: str | None,
    steps: StepTimes,
    now: float,
) -> WatchedRun:
    """Return the run as the log reader needs it.

    Args:
        record: of the run.
        folder: of the record in the runs folder; None for a copy.
        owner: uid of the user whose record it is, or, `on_node`, whose job.
        owned: all its logs belong to this exporter.
        on_node: its job writes on this node, and its record is another exporter's.
        host: the node's name in path templates, None for every node.
        steps: when the step advanced.
        now: Unix seconds.
    """
    metadata = record.metadata
    values = {"run_id": record.run_id}
    if metadata:
        stated = {**metadata.environment}
        values.update({name: stated[key] for key, name in PLACEHOLDERS.items() if stated.get(key)})
        values.update({"job_id": metadata.job_id} if metadata.job_id else {})
        values.update({"attempt": str(metadata.attempt)} if metadata.attempt is not None else {})
    if host:
        values["host"] = host.partition(".")[0]
    return WatchedRun(
        run_id=record.run_id,
        folder=folder,
        owner=None if folder is None else owner,
        owned=owned,
        on_node=on_node,
        attempt=attempt_id(record),
        attempt_start=record.attempt_start,
        ended=record.state in ENDED,
        quiet=is_quiet(record, steps.advanced, now),
        values=values,
        signals=metadata.signals if metadata else None,
        log_path=metadata.log_path if metadata else None,
    )


def names_cause(verdict: FailureVerdict) -> bool:
    """Return whether a record's own verdict names a cause."""
    return verdict.failure not in _ENDS and not _is_cascade(verdict.failure)


def completed(own: FailureVerdict, found: LogVerdict | None) -> FailureVerdict:
    """Return the record's own verdict; where it names no cause, with the cause that was found in its logs."""
    if found is None or (not _is_users_cause(found, own) and (names_cause(own) or not _is_better(found, own))):
        return own
    return replace(
        own,
        error_type=found.error_type,
        failure=found.failure,
        subsystem=found.subsystem,
        severity=found.severity,
        message=found.message,
        hint=found.hint,
    )


def verdict_of(text: str) -> LogVerdict | None:
    """Return the verdict over the end of a log that is not followed; None if it shows no failure."""
    cause = cause_in(text)
    failure = FAILURES.get(cause.failure or "") if cause else None
    if cause is None or failure is None:
        return None
    found = cause.source
    return LogVerdict(
        error_type=failure.error_type,
        failure=failure.slug,
        subsystem=failure.subsystem,
        severity=failure.severity,
        message=found.text.strip()[:_MESSAGE],
        hint=failure.hint,
        signal=found.signal,
        role=cause.role,
    )


class LogEvidence:
    """Completes records with what the shared state has of their logs.

    Args:
        shared: where the collector of logs publishes.
        logs_followed: whether that collector runs.
        wait: seconds that a failure without a cause is held back for its logs.
        monotonic: the clock, that of `LogView.taken`.
    """

    def __init__(
        self,
        shared: SharedState,
        *,
        logs_followed: bool,
        wait: float = WAIT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared = shared
        self._logs_followed = logs_followed
        self._wait = wait
        self._monotonic = monotonic
        self._failed: dict[str, tuple[str, float]] = {}
        self._frozen: dict[str, tuple[str, FailureVerdict]] = {}

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget all other runs."""
        for known in (self._failed, self._frozen):
            for run_id in known.keys() - run_ids:
                del known[run_id]

    def is_awaited(self, record: RunRecord, own: FailureVerdict) -> bool:
        """Return whether the logs of a failed attempt may still name the cause that `own` lacks."""
        view = self.view_of_attempt(record)
        # Until the logs are read once, with the pack that the record names, a signal of a user may be in them.
        names_pack = record.metadata is not None and bool(record.metadata.signals)
        is_open = own.failure == UNKNOWN and (view is None or view.users_signals or names_pack)
        if not self._logs_followed or (names_cause(own) and not is_open) or self._frozen_for(record):
            return False
        now = self._monotonic()
        attempt, since = self._failed.get(record.run_id, ("", 0.0))
        if attempt != attempt_id(record) or record.run_id not in self._failed:
            since = now
            self._failed[record.run_id] = (attempt_id(record), now)
        return not (view and view.settled) and now - since < self._wait

    def refine(self, record: RunRecord, own: FailureVerdict) -> FailureVerdict:
        """Return the verdict to show: `own` if it names a cause, else that of the logs; the first one is kept."""
        if known := self._frozen_for(record):
            return known
        view = self.view_of_attempt(record)
        found = view.verdict if view and view.settled else None
        verdict = completed(own, found)
        # Without an identity of attempts the next one would get this verdict.
        if self._logs_followed and attempt_id(record) and verdict.failure != UNKNOWN_END:
            self._frozen[record.run_id] = (attempt_id(record), verdict)
        return verdict

    def view_of_attempt(self, record: RunRecord) -> LogView | None:
        """Return the view of the logs if it is about the attempt that owns the record."""
        found = self._shared.views.get(record.run_id)
        return found if found and found.attempt == attempt_id(record) else None

    def current_view(self, run_id: str) -> LogView | None:
        """Return the view of a run's logs unless it is out of date."""
        found = self._shared.views.get(run_id)
        return found if found and self._monotonic() - found.taken < FRESH_SECONDS else None

    def log_only_views(self, known: Collection[str]) -> Iterator[tuple[str, LogView]]:
        """Yield the runs that have logs and no record."""
        for run_id in self._shared.log_only:
            if run_id not in known and (view := self.current_view(run_id)):
                yield run_id, view

    def _frozen_for(self, record: RunRecord) -> FailureVerdict | None:
        attempt, verdict = self._frozen.get(record.run_id, ("", None))
        return verdict if attempt == attempt_id(record) else None


def is_training_by_log(record: RunRecord, view: LogView | None) -> bool:
    """Return whether the logs show progress of a run that has recorded nothing yet."""
    return record.state == "pending" and not record.has_metadata and view is not None and view.progress is not None


def _is_users_cause(found: LogVerdict, own: FailureVerdict) -> bool:
    """Return whether a user's own signal explains what the record has only as an exception."""
    return found.is_users and found.role in ("root", "symptom") and own.failure == UNKNOWN


def _is_better(found: LogVerdict, own: FailureVerdict) -> bool:
    """Return whether the cause in the logs is more specific than a record that names none."""
    if found.failure == "launcher_child" or found.role == "confirmation":
        return False
    return found.failure not in _ENDS - {""} or own.failure in ("", "nonzero_exit")


def _is_cascade(failure: str) -> bool:
    return failure in FAILURES and FAILURES[failure].cascade
