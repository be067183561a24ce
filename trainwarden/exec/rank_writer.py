"""What a process that runs a rank from outside writes into the rank's file of the run's record."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from trainwarden.identity import AttemptKey, host_name, process_lives
from trainwarden.record.rank import RankBeat, rank_file, read_rank
from trainwarden.record.store import RecordStore

if TYPE_CHECKING:
    from trainwarden.record.document import Unreadable


class ExternalRankWriter:
    """Writes `ranks/<rank>.json` where no other process, such as a training with the library, does for this attempt."""

    def __init__(self, store: RecordStore, key: AttemptKey, rank: int, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._store = store
        self._key = key
        self._rank = rank

    def write(self, status: str = "running", *, over: bool = False) -> bool:
        """Write that the rank lives, or how it ended; False if another process does, or it could not be written.

        Args:
            status: of the rank.
            over: the process that wrote another end is gone: this one counts.
        """
        known = self._known()
        if self._is_anothers(known) and not over:
            return False
        beat = RankBeat(
            rank=self._rank,
            step=known.step if isinstance(known, RankBeat) and (over or self._is_ours(known)) else None,
            phase="done" if status == "succeeded" else "idle",
            status=status,
            time=time.time(),
            host=host_name(),
            pid=self._pid,
            attempt_key=str(self._key),
        )
        try:
            self._store.write(rank_file(self._rank), beat)
        except OSError:
            return False
        return True

    @property
    def is_anothers(self) -> bool:
        """Whether another process, such as a training with the library, writes of this rank."""
        return self._is_anothers(self._known())

    def has_failed(self) -> bool:
        """Return whether the training itself has written that the rank failed, or that it was ended."""
        known = self._known()
        return self._is_anothers(known) and isinstance(known, RankBeat) and known.status in ("failed", "cancelled")

    def _known(self) -> RankBeat | Unreadable | None:
        return read_rank(self._store.folder, self._rank, key=str(self._key), host=host_name())

    def _is_anothers(self, known: object) -> bool:
        if not isinstance(known, RankBeat) or known.attempt_key != str(self._key) or self._is_ours(known):
            return False
        # A process that died without recording its end writes no more.
        is_here = known.host == host_name() and known.pid is not None
        return not is_here or known.status != "running" or process_lives(known.pid or 0)

    def _is_ours(self, beat: RankBeat) -> bool:
        return (beat.host, beat.pid) == (host_name(), self._pid)
