"""The attempts of runs over time: their changes of state, logged, and their durations, counted."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden.redaction import name_text
from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.record import ENDED, plausible_timestamp
from trainwarden_exporter.core.line_budget import LineBudget

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.runs.record import RunRecord
    from trainwarden_exporter.core.metric import Families

log = logging.getLogger(__name__)

HOUR, DAY = 3600.0, 86400.0
BOUNDS = (60.0, 300.0, 900.0, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY)


class StateChangeLog:
    """Logs the start of each attempt and each change of a run's state; of one user within a `LineBudget`."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str | None, str]] = {}
        self._budget = LineBudget()

    def observe(self, record: RunRecord, owner: int | None, now: float) -> None:
        """Log what differs from the last record of the run, which belongs to a user."""
        key, state = record.attempt_key, record.state or "unknown"
        known = self._seen.get(record.run_id)
        self._seen[record.run_id] = (key, state)
        if known == (key, state):
            return
        attempt = record.metadata.attempt if record.metadata else None
        shown = f"run_id={record.run_id} attempt={'-' if attempt is None else attempt} key={name_text(key or '-')}"
        if (
            state == "running"
            and (known is None or known[0] != key or known[1] != "running")
            and self._take(owner, now)
        ):
            log.info("run_started %s", shown)
        if known is not None and self._take(owner, now):
            log.info("run_state_changed %s old=%s new=%s", shown, known[1], state)

    def _take(self, owner: int | None, now: float) -> bool:
        """Return whether there is room for one more line about a user's runs."""
        taken = self._budget.take(owner, now)
        if not taken and self._budget.is_first_refusal(owner):
            log.warning("run_changes_left_out uid=%s: its runs change too often to be logged", owner)
        return taken

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget all other runs."""
        for run_id in self._seen.keys() - run_ids:
            del self._seen[run_id]


class AttemptDurations:
    """A histogram of durations for each state in which an attempt may end. It begins at zero with the exporter.

    An attempt is counted if it ended after `since` or was seen running. The others were counted by an earlier process
    of the exporter; counting them again would show as a rate. The histogram is of all users' runs: a duration that no
    attempt can have had is not counted.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._counts: dict[str, Counter[float]] = {state: Counter() for state in sorted(ENDED)}
        self._sums: dict[str, float] = dict.fromkeys(self._counts, 0.0)
        self._running: dict[str, tuple[str | None, float | None]] = {}
        self._counted: dict[str, tuple[str | None, float | None]] = {}

    def observe(self, record: RunRecord, now: float) -> None:
        """Count the attempt if it has ended and was not counted yet; `now` is Unix seconds."""
        attempt = (record.attempt_key, record.attempt_start)
        if record.state not in ENDED:
            self._running[record.run_id] = attempt
            return
        start, end = plausible_timestamp(record.attempt_start, now), plausible_timestamp(record.end, now)
        if start is None or end is None or end < start or self._counted.get(record.run_id) == attempt:
            return
        self._counted[record.run_id] = attempt
        if end >= self._since or self._running.get(record.run_id) == attempt:
            bound = next((bound for bound in BOUNDS if end - start <= bound), float("inf"))
            self._counts[record.state][bound] += 1
            self._sums[record.state] += end - start

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget all other runs; what was counted stays counted."""
        for known in (self._running, self._counted):
            for run_id in known.keys() - run_ids:
                del known[run_id]

    def add(self, families: Families) -> None:
        """Add the histograms."""
        for state, counts in self._counts.items():
            total, buckets = 0, []
            for bound in (*BOUNDS, float("inf")):
                total += counts[bound]
                buckets.append((bound, total))
            families.add_histogram(metrics.TRAINING_RUN_DURATION_SECONDS, buckets, self._sums[state], state=state)
