"""Says in the exporter's log when a run starts and when its state changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.runs.view import RunRecord

log = logging.getLogger(__name__)


class Transitions:
    """Remembers the attempt and the state that each run was last seen in."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str | None, str]] = {}

    def observe(self, record: RunRecord) -> None:
        """Log what is new: a running attempt, another state than before."""
        key, state = record.attempt_key, record.state or "unknown"
        known = self._seen.get(record.run_id)
        self._seen[record.run_id] = (key, state)
        if known == (key, state):
            return
        attempt = record.metadata.attempt if record.metadata else None
        shown = f"run_id={record.run_id} attempt={'-' if attempt is None else attempt} key={label_text(key or '-')}"
        if state == "running" and (known is None or known[0] != key or known[1] != "running"):
            log.info("run_started %s", shown)
        if known is not None:
            log.info("run_state_changed %s old=%s new=%s", shown, known[1], state)

    def forget_others(self, run_ids: set[str]) -> None:
        """Keep nothing of runs that are gone."""
        for run_id in self._seen.keys() - run_ids:
            del self._seen[run_id]
