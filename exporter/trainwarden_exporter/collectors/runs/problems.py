"""What could not be used of the records: counted each time, named in the log once."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.folder import UNEXPECTED, UNREADABLE, Problem
from trainwarden_exporter.core.redaction import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainwarden_exporter.core.metric import Families

log = logging.getLogger(__name__)

INVALID_NAME, INTERNAL, BLOCKED = "invalid_run_id", "internal", "blocked"
REASONS = (INVALID_NAME, UNREADABLE, UNEXPECTED, BLOCKED, INTERNAL)
LOGGED_AT_ONCE = 20


class Problems:
    """Those of one look, and which have been named."""

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._logged: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """Begin a new look."""
        self._found = []

    def add(self, problems: Iterable[Problem]) -> None:
        """Take in what was found."""
        self._found += problems

    @contextlib.contextmanager
    def isolated(self, run_id: str) -> Iterator[None]:
        """Let no record, however odd, cost the others theirs."""
        try:
            yield
        except FileNotFoundError:
            log.debug("run %s was removed while it was read", run_id)
        except OSError as error:
            self._found.append(Problem(UNREADABLE, run_id, str(error)))
        except Exception as error:
            log.debug("run %s", run_id, exc_info=True)
            self._found.append(Problem(INTERNAL, run_id, f"{type(error).__name__}: {error}"))

    def tell(self, families: Families) -> None:
        """Count them, and name the first of each kind and folder, once: what changes with every step is one problem."""
        reasons = Counter(problem.reason for problem in self._found)
        for reason in REASONS:
            families.add(metrics.TRAINWARDEN_RUNS_UNREADABLE, reasons[reason], reason=reason)
        first: dict[tuple[str, str], Problem] = {}
        for problem in self._found:
            first.setdefault((problem.reason, problem.folder), problem)
        new = [problem for key, problem in first.items() if key not in self._logged]
        for problem in new[:LOGGED_AT_ONCE]:
            log.warning("%s", plain(f"run {problem.folder}: {problem.reason}: {problem.text}")[:500])
        if len(new) > LOGGED_AT_ONCE:
            log.warning("and %d more runs with something that cannot be used", len(new) - LOGGED_AT_ONCE)
        self._logged = set(first)
