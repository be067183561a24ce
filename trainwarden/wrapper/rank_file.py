"""`ranks/<rank>.json`, where the training does not write it itself."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from trainwarden.identity import AttemptKey, host_name, process_lives
from trainwarden.record.clock import to_iso
from trainwarden.record.files import RankBeat, read_rank
from trainwarden.record.folder import RANKS, write_json


class RankFile:
    """One rank's sign of life, left to whoever else writes it for this attempt: a training that uses the library."""

    def __init__(self, folder: Path, key: AttemptKey, rank: int, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._folder = folder
        self._key = key
        self._rank = rank

    def write(self, status: str = "running") -> bool:
        """Say that the rank lives, or how it ended; False if that is for another to say, or could not be written."""
        known = read_rank(self._folder, self._rank)
        if self._is_anothers(known):
            return False
        document = {
            "rank": self._rank,
            "step": known.step if isinstance(known, RankBeat) and self._is_ours(known) else None,
            "phase": "idle" if status != "succeeded" else "done",
            "status": status,
            "time": to_iso(time.time()),
            "host": host_name(),
            "pid": self._pid,
            "attempt_key": str(self._key),
        }
        with contextlib.suppress(OSError):
            path = self._folder / RANKS / f"{self._rank}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, document)
            return True
        return False

    def has_spoken(self) -> bool:
        """Whether the training said how it ended."""
        known = read_rank(self._folder, self._rank)
        return self._is_anothers(known) and isinstance(known, RankBeat) and known.status not in (None, "running")

    def _is_anothers(self, known: object) -> bool:
        if not isinstance(known, RankBeat) or known.attempt_key != str(self._key) or self._is_ours(known):
            return False
        # Whoever died without a word writes no more.
        is_here = known.host == host_name() and known.pid is not None
        return not is_here or known.status != "running" or process_lives(known.pid or 0)

    def _is_ours(self, beat: RankBeat) -> bool:
        return (beat.host, beat.pid) == (host_name(), self._pid)
