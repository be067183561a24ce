"""A log read from its beginning, where NCCL says what it uses, and then only at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.signals.tailing.follower import Follower

if TYPE_CHECKING:
    from collections.abc import Sequence

SLICE_BYTES = 256 * 1024
FIRST_BYTES = 64 * 2**20
# Behind these, so much of what was written since the last look.
TAIL_BYTES = 2**20
# A log that nothing happens to needs no open file.
REST_SECONDS = 60.0


class InitLog:
    """Follows one file; `first` bytes of it are read whole. All may raise `OSError` and `Refused`."""

    def __init__(self, path: str, roots: Sequence[str], first: int = FIRST_BYTES) -> None:
        self.path = path
        self._roots = roots
        self._first = first
        self._read = 0
        self._follower = Follower(path, roots, first_read=2**62)

    def poll(self, now: float) -> None:
        """Look at the file, once before `take` is called until it returns None; `now` is Unix seconds."""
        self._follower.poll()
        if self._read >= self._first and self._follower.lag > TAIL_BYTES:
            self._follower.close()
            self._follower = Follower(self.path, self._roots, first_read=TAIL_BYTES)
            self._follower.poll()
        modified = self._follower.modified
        if not self._follower.lag and modified is not None and now - modified > REST_SECONDS:
            self._follower.rest()

    def take(self) -> bytes | None:
        """Return the next whole lines; None if there is none now, or enough was read since the last look."""
        piece = self._follower.read(SLICE_BYTES)
        if piece is None:
            return None
        if piece.anew and self._follower.offset == 0:
            self._read = 0
        end = max(piece.data.rfind(b"\n"), piece.data.rfind(b"\r")) + 1
        if not end and (piece.last or len(piece.data) >= SLICE_BYTES):
            end = len(piece.data)
        self._follower.consume(end)
        self._read += end
        return piece.data[:end] or None

    def close(self) -> None:
        """Let the file go."""
        self._follower.close()
