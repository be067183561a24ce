"""The run records, where the remediator can see them: is the attempt complete, and a word before it is ended."""

from __future__ import annotations

from pathlib import Path

from trainwarden.record.sentinels import Sentinel, current_completion
from trainwarden.record.store import RecordStore
from trainwarden_remediator.evidence import Run


class Records:
    """The folder `<runs>`; None where the remediator does not see it: then it knows nothing and tells nobody."""

    def __init__(self, runs_dir: Path | None) -> None:
        self._runs_dir = runs_dir

    def complete(self, run: Run) -> bool:
        """Whether `_complete` says that the run's present attempt finished. Unreadable is not complete."""
        if self._runs_dir is None:
            return False
        return isinstance(current_completion(self._runs_dir / run.run_id, run.attempt_key, run.started), Sentinel)

    def announce_restart(self, run_id: str, attempt_key: str, reason: str, intent: str) -> str | None:
        """Tell the attempt why it will end. Returns what went wrong, if anything: it is a courtesy."""
        if self._runs_dir is None or not (self._runs_dir / run_id).is_dir():
            return None
        try:
            RecordStore(self._runs_dir / run_id).announce_restart(attempt_key, reason, intent)
        except OSError as error:
            return f"the restart could not be announced in the record: {error.strerror}"
        return None
