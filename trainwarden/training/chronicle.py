"""What happened in a run, line by line: `events.jsonl` and the journal of errors."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwarden.record.folder import ERRORS, EVENTS, RANKS
from trainwarden.record.lines import encode_line
from trainwarden.training.endings import Ending
from trainwarden.training.journal import Journal
from trainwarden.training.requests import Caught, Note
from trainwarden.training.subject import Subject
from trainwarden.training.summary import KEPT_ERRORS

_RECENT_BYTES = 4096


class Chronicle:
    """Any thread may tell it something, in memory only; the thread that writes the record has it written.

    Rank 0 keeps both journals, the others one of their errors.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        is_first = subject.beginning is not None
        errors = ERRORS if is_first else f"{RANKS}/{subject.rank}.{ERRORS}"
        self._errors = Journal(subject.folder / errors)
        self._events = Journal(subject.folder / EVENTS) if is_first else None
        self._recent: deque[bytes] = deque(maxlen=KEPT_ERRORS)
        # Reentrant for the signal handler, and held only while numbers are moved.
        self._lock = threading.RLock()
        self._epoch: Any = None
        self._epochs_ended: int | None = None
        self._dropped_said = 0

    def note(self, note: Note, *, must: bool = False) -> None:
        """Take an event; one that `must` be is never left out for want of room."""
        if self._events is None:
            return
        if note.event == "epoch_started":
            self._count_epoch(note.data.get("epoch"))
        _add(self._events, self._subject.event(note), must=must)

    def event(self, event: str, data: Mapping[str, Any], *, must: bool = False) -> None:
        """Take an event of ours that happens now."""
        self.note(Note(time.time(), event, data), must=must)

    def caught(self, caught: Caught, *, must: bool = False) -> None:
        """Take an error; as `note` in all else."""
        error = self._subject.error(caught)
        _add(self._errors, error, must=must)
        brief = {key: value for key, value in error.items() if key != "traceback"}
        self._recent.append(encode_line(brief, _RECENT_BYTES))
        data = {key: brief[key] for key in ("exception_type", "error_message", "severity", "category", "failure")}
        self.note(Note(caught.time, "error", data), must=must)

    def failed(self, ending: Ending, end_time: float) -> None:
        """Take the error that ends the process."""
        failure = ending.failure
        if failure is None:
            # Another rank's: it is in the journal of that one.
            return
        self.caught(
            Caught(
                time=end_time,
                exception_type=ending.exception_type or "",
                message=ending.reason or "",
                severity=failure.severity,
                category=failure.category,
                error_type=failure.error_type,
                failure=failure.slug,
                traceback=ending.traceback,
                context={} if ending.exit_code is None else {"exit_code": ending.exit_code},
            ),
            must=True,
        )

    def epochs_completed(self, *, succeeded: bool) -> int | None:
        """How many epochs this attempt finished; None if it has told of none."""
        ended = self._epochs_ended
        return ended + 1 if ended is not None and succeeded else ended

    def recent_errors(self) -> Iterator[dict[str, Any]]:
        """The last errors, without traces."""
        return (json.loads(line) for line in list(self._recent))

    @property
    def dropped(self) -> int:
        """How many lines were left out, for want of room in memory while they could not be written."""
        return self._errors.dropped + (self._events.dropped if self._events else 0)

    def flush(self, *, only_errors: bool = False) -> list[str]:
        """Write what waits; the names of the files that have changed.

        Raises:
            OSError: not everything could be written; the rest still waits.
        """
        journals = [self._errors] if self._events is None or only_errors else [self._errors, self._events]
        changed = _flush(journals)
        dropped, said = self.dropped, self._dropped_said
        if dropped > said:
            self._dropped_said = dropped
            note = Note(time.time(), "lines_dropped", {"count": dropped - said})
            _add(journals[-1], self._subject.event(note), must=True)
            changed += _flush(journals)
        return [path.relative_to(self._subject.folder).as_posix() for path in dict.fromkeys(changed)]

    def _count_epoch(self, epoch: Any) -> None:
        with self._lock:
            if self._epochs_ended is None:
                self._epochs_ended = 0
            elif epoch != self._epoch:
                self._epochs_ended += 1
            self._epoch = epoch


def _add(journal: Journal, document: Mapping[str, Any], *, must: bool) -> None:
    if journal.is_full() and not must:
        # Without the work of making a line that nobody will see.
        journal.drop()
    else:
        journal.add(encode_line(document), must=must)


def _flush(journals: list[Journal]) -> list[Path]:
    changed: list[Path] = []
    problems = []
    for journal in journals:
        try:
            changed += journal.flush()
        except OSError as error:  # noqa: PERF203  # two at most, and one must not keep the other back
            problems.append(error)
    if problems:
        raise problems[0]
    return changed
