"""The events and errors of a run, line by line: `events.jsonl` and `errors.jsonl`."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwarden.record.folder import ERRORS, EVENTS, RANKS
from trainwarden.record.lines import encode_line
from trainwarden.training.brief_lock import BriefLock
from trainwarden.training.context import RunContext
from trainwarden.training.events import CaughtError, RunEvent
from trainwarden.training.journal import JournalFile
from trainwarden.training.outcome import AttemptOutcome
from trainwarden.training.summary import KEPT_ERRORS

_RECENT_BYTES = 4096


class EventLog:
    """Collects events and errors in memory, from any thread; `flush` writes them, from the thread of the record.

    Rank 0 writes both files, every other rank `ranks/<rank>.errors.jsonl` only.

    Args:
        context: of the run.
        observe: called with each event; it never raises.
    """

    def __init__(self, context: RunContext, observe: Callable[[RunEvent], None] | None = None) -> None:
        self._context = context
        self._observe = observe
        is_first = context.beginning is not None
        errors = ERRORS if is_first else f"{RANKS}/{context.rank}.{ERRORS}"
        self._errors = JournalFile(context.folder / errors)
        self._events = JournalFile(context.folder / EVENTS) if is_first else None
        self._recent: deque[bytes] = deque(maxlen=KEPT_ERRORS)
        self._lock = BriefLock()
        self._epoch: Any = None
        self._epochs_ended: int | None = None
        self._dropped_reported = 0

    def add(self, event: RunEvent, *, required: bool = False) -> None:
        """Add an event; a `required` one is never dropped when the memory bound is reached."""
        if self._events is None:
            return
        if self._observe is not None:
            self._observe(event)
        if event.event == "epoch_started":
            self._count_epoch(event.data.get("epoch"))
        _add(self._events, self._context.event_line(event), required=required)

    def add_now(self, event: str, data: Mapping[str, Any], *, required: bool = False) -> None:
        """Add an event with the current time."""
        self.add(RunEvent(time.time(), event, data), required=required)

    def add_error(self, error: CaughtError, *, required: bool = False) -> None:
        """Add an error, and an event of the same content without traceback."""
        line = self._context.error_line(error)
        _add(self._errors, line, required=required)
        brief = {key: value for key, value in line.items() if key != "traceback"}
        self._recent.append(encode_line(brief, _RECENT_BYTES))
        data = {key: brief[key] for key in ("exception_type", "error_message", "severity", "category", "failure")}
        self.add(RunEvent(error.time, "error", data), required=required)

    def add_failure(self, outcome: AttemptOutcome, end_time: float) -> None:
        """Add the error that ends the process, if it is this rank's own; `end_time` is Unix seconds."""
        failure = outcome.failure
        if failure is None:
            # Another rank failed and writes it into its own journal.
            return
        self.add_error(
            CaughtError(
                time=end_time,
                exception_type=outcome.exception_type or "",
                message=outcome.reason or "",
                severity=failure.severity,
                category=failure.category,
                error_type=failure.error_type,
                failure=failure.slug,
                traceback=outcome.traceback,
                context={} if outcome.exit_code is None else {"exit_code": outcome.exit_code},
            ),
            required=True,
        )

    def epochs_completed(self, *, succeeded: bool) -> int | None:
        """Return how many epochs this attempt finished; None if it reported none."""
        ended = self._epochs_ended
        return ended + 1 if ended is not None and succeeded else ended

    def recent_errors(self) -> Iterator[dict[str, Any]]:
        """Return the last 20 errors, without tracebacks."""
        return (json.loads(line) for line in list(self._recent))

    @property
    def dropped(self) -> int:
        """How many lines were dropped because too many waited for a disk that failed."""
        return self._errors.dropped + (self._events.dropped if self._events else 0)

    def flush(self, *, only_errors: bool = False) -> list[str]:
        """Write the waiting lines and return the names of the changed files, relative to the run's folder.

        Raises:
            OSError: not everything could be written; the rest still waits.
        """
        journals = [self._errors] if self._events is None or only_errors else [self._errors, self._events]
        changed = _flush(journals)
        dropped, reported = self.dropped, self._dropped_reported
        if dropped > reported:
            self._dropped_reported = dropped
            event = RunEvent(time.time(), "lines_dropped", {"count": dropped - reported})
            _add(journals[-1], self._context.event_line(event), required=True)
            changed += _flush(journals)
        return [path.relative_to(self._context.folder).as_posix() for path in dict.fromkeys(changed)]

    def _count_epoch(self, epoch: Any) -> None:
        with self._lock:
            if self._epochs_ended is None:
                self._epochs_ended = 0
            elif epoch != self._epoch:
                self._epochs_ended += 1
            self._epoch = epoch


def _add(journal: JournalFile, document: Mapping[str, Any], *, required: bool) -> None:
    if journal.is_full() and not required:
        # Do not encode a line that would be dropped.
        journal.drop()
    else:
        journal.add(encode_line(document), required=required)


def _flush(journals: list[JournalFile]) -> list[Path]:
    changed: list[Path] = []
    problems = []
    for journal in journals:
        try:
            changed += journal.flush()
        except OSError as error:  # noqa: PERF203  # two files at most, and one must not block the other
            problems.append(error)
    if problems:
        raise problems[0]
    return changed
