"""What cannot be used of records: counted in each sample, logged once."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.redaction import plain
from trainwarden_exporter.collectors.runs import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainwarden_exporter.core.metric import Families

log = logging.getLogger(__name__)

INVALID_NAME, UNREADABLE, UNEXPECTED = "invalid_run_id", "unreadable", "unexpected_value"
BLOCKED, INTERNAL = "blocked", "internal"
REASONS = (INVALID_NAME, UNREADABLE, UNEXPECTED, BLOCKED, INTERNAL)
MAX_LOGGED_AT_ONCE = 20


@dataclass(frozen=True)
class RecordProblem:
    """Something of a record that cannot be used: one of `REASONS`, the folder's name, the details for the log."""

    reason: str
    folder: str
    text: str


class RecordProblems:
    """The problems of one sample, and those that have been logged."""

    def __init__(self) -> None:
        self._found: list[RecordProblem] = []
        self._logged: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """Begin a new sample."""
        self._found = []

    def extend(self, problems: Iterable[RecordProblem]) -> None:
        """Count these in the sample."""
        self._found += problems

    @contextlib.contextmanager
    def isolated(self, run_id: str) -> Iterator[None]:
        """Turn whatever a record raises into a problem, so that it costs no other record."""
        try:
            yield
        except FileNotFoundError:
            log.debug("run %s was removed while it was read", run_id)
        except OSError as error:
            self._found.append(RecordProblem(UNREADABLE, run_id, str(error)))
        except Exception as error:
            log.debug("run %s", run_id, exc_info=True)
            self._found.append(RecordProblem(INTERNAL, run_id, f"{type(error).__name__}: {error}"))

    def report(self, families: Families) -> None:
        """Add the counts, and log the first new problem of each reason and folder."""
        reasons = Counter(problem.reason for problem in self._found)
        for reason in REASONS:
            families.add(metrics.TRAINWARDEN_RUNS_UNREADABLE, reasons[reason], reason=reason)
        # The text of a problem may change with every step: reason and folder identify it.
        first: dict[tuple[str, str], RecordProblem] = {}
        for problem in self._found:
            first.setdefault((problem.reason, problem.folder), problem)
        new = [problem for key, problem in first.items() if key not in self._logged]
        for problem in new[:MAX_LOGGED_AT_ONCE]:
            log.warning("%s", plain(f"run {problem.folder}: {problem.reason}: {problem.text}")[:500])
        if len(new) > MAX_LOGGED_AT_ONCE:
            log.warning("and %d more runs with something that cannot be used", len(new) - MAX_LOGGED_AT_ONCE)
        self._logged = set(first)
