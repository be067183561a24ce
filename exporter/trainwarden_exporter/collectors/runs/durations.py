"""How long attempts take: each that ends is counted once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.runs import metrics
from trainwarden_exporter.collectors.runs.view import ENDED

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.runs.view import RunRecord
    from trainwarden_exporter.core.metric import Families

HOUR, DAY = 3600.0, 86400.0
BOUNDS = (60.0, 300.0, 900.0, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY)


class Durations:
    """A histogram for each state in which an attempt may end. It begins at zero with the exporter.

    Counted are the attempts that ended after `since`, or were seen running: counting again what an exporter before this
    one has counted would make a rate of it.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._counts: dict[str, Counter[float]] = {state: Counter() for state in sorted(ENDED)}
        self._sums: dict[str, float] = dict.fromkeys(self._counts, 0.0)
        self._running: dict[str, tuple[str | None, float | None]] = {}
        self._counted: dict[str, tuple[str | None, float | None]] = {}

    def observe(self, record: RunRecord) -> None:
        """Take in how an attempt is."""
        attempt = (record.attempt_key, record.attempt_start)
        if record.state not in ENDED:
            self._running[record.run_id] = attempt
            return
        start, end = record.attempt_start, record.end
        if start is None or end is None or end < start or self._counted.get(record.run_id) == attempt:
            return
        self._counted[record.run_id] = attempt
        if end >= self._since or self._running.get(record.run_id) == attempt:
            bound = next((bound for bound in BOUNDS if end - start <= bound), float("inf"))
            self._counts[record.state][bound] += 1
            self._sums[record.state] += end - start

    def forget_others(self, run_ids: set[str]) -> None:
        """Keep nothing of runs that are gone."""
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
