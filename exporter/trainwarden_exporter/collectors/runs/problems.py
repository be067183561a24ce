"""What cannot be used of records: counted in each sample, logged once."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.redaction import plain
from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.limits import fair_order
from trainwarden_exporter.core.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from trainwarden_exporter.core.metric import Families

log = logging.getLogger(__name__)

INVALID_NAME, UNREADABLE, UNEXPECTED = "invalid_run_id", "unreadable", "unexpected_value"
BLOCKED, INTERNAL = "blocked", "internal"
REASONS = (INVALID_NAME, UNREADABLE, UNEXPECTED, BLOCKED, INTERNAL)
MAX_LOGGED_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """Something of a record that cannot be used: one of `REASONS`, the folder's name, the details for the log."""

    reason: str
    folder: str
    text: str


class _Isolated:
    """A context of one record; a class, for one that a generator makes takes longer than to look at a file."""

    __slots__ = ("_found", "_run_id")

    def __init__(self, found: list[RecordProblem], run_id: str) -> None:
        self._found, self._run_id = found, run_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        if isinstance(error, FileNotFoundError):
            log.debug("run %s was removed while it was read", self._run_id)
        elif isinstance(error, OSError):
            self._found.append(RecordProblem(UNREADABLE, self._run_id, str(error)))
        else:
            log.debug("run %s", self._run_id, exc_info=error)
            self._found.append(RecordProblem(INTERNAL, self._run_id, f"{type(error).__name__}: {error}"))
        return True


class RecordProblems:
    """The problems of one sample, and those that have been logged; of one user within a `LineBudget`."""

    def __init__(self) -> None:
        self._found: list[RecordProblem] = []
        self._logged: set[tuple[str, str]] = set()
        self._budget = LineBudget()

    def begin(self) -> None:
        """Begin a new sample."""
        self._found = []

    def extend(self, problems: Iterable[RecordProblem]) -> None:
        """Count these in the sample."""
        self._found += problems

    def isolated(self, run_id: str) -> AbstractContextManager[None]:
        """Return a context that turns whatever a record raises into a problem, so that it costs no other record."""
        return _Isolated(self._found, run_id)

    def report(self, families: Families, owners: Mapping[str, int]) -> None:
        """Add the counts, and log the first new problem of each reason and folder, those of each user in turn.

        `owners` are the uids of the users of folders, as far as they are known.
        """
        reasons = Counter(problem.reason for problem in self._found)
        for reason in REASONS:
            families.add(metrics.TRAINWARDEN_RUNS_UNREADABLE, reasons[reason], reason=reason)
        # The text of a problem may change with every step: reason and folder identify it.
        first: dict[tuple[str, str], RecordProblem] = {}
        for problem in self._found:
            first.setdefault((problem.reason, problem.folder), problem)
        new = [problem for key, problem in first.items() if key not in self._logged]
        logged = 0
        for problem in fair_order(new, lambda each: owners.get(each.folder, -1), lambda each: each.folder):
            owner = owners.get(problem.folder)
            if logged < MAX_LOGGED_AT_ONCE and self._budget.take(owner, time.monotonic()):
                log.warning("%s", plain(f"run {problem.folder}: {problem.reason}: {problem.text}")[:500])
                logged += 1
            elif logged < MAX_LOGGED_AT_ONCE and self._budget.is_first_refusal(owner):
                log.warning("run_problems_left_out uid=%s: they change too often to be logged", owner)
        if logged == MAX_LOGGED_AT_ONCE < len(new):
            log.warning("and %d more runs with something that cannot be used", len(new) - logged)
        self._logged = set(first)
