"""Which runs should be there, as flags and schedulers say, before any of them has left a record."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Expected:
    """What each source expects. Written and read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[str, dict[str, float]] = {}

    def put(self, source: str, runs: Mapping[str, float]) -> None:
        """Replace what a source expects.

        Args:
            source: `flag`, `slurm`, `ray`, …; the value of a label.
            runs: since when each is expected, by run id; Unix seconds.
        """
        with self._lock:
            self._sources[source] = dict(runs)

    def keep(self, source: str, run_ids: Iterable[str], now: float) -> None:
        """Replace what a source expects that does not know since when: those that are new since `now`."""
        with self._lock:
            known = self._sources.get(source, {})
            self._sources[source] = {run_id: known.get(run_id, now) for run_id in run_ids}

    def runs(self) -> dict[str, dict[str, float]]:
        """Return what is expected: for each run id, since when by source."""
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            for source, runs in sorted(self._sources.items()):
                for run_id, since in runs.items():
                    found.setdefault(run_id, {})[source] = since
        return found


# One exporter is one process: collectors that know of runs put them here, the collector of runs looks.
EXPECTED = Expected()
