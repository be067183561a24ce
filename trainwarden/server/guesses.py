"""Bounds what clients that guess passwords may take of a processor, and of each other's time."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PER_CLIENT = 64
_OF_ALL = 256


class TooManyGuesses(Exception):
    """So many passwords wait to be checked that one more is not."""

    def __init__(self) -> None:
        super().__init__("too many passwords are being checked; try again later")


class Turns:
    """Admits one caller at a time: the clients in turn, and those of one client in their order."""

    def __init__(self, per_client: int = _PER_CLIENT, of_all: int = _OF_ALL) -> None:
        self._per_client, self._of_all = per_client, of_all
        self._lock = threading.Lock()
        self._is_taken = False
        self._is_closed = False
        self._free = threading.Condition(self._lock)
        self._waiting: dict[str, deque[threading.Event]] = {}  # the client whose turn is next comes first

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return self._count()

    @contextlib.contextmanager
    def turn(self, client: str) -> Iterator[None]:
        """Wait for a turn, and have it while the block lasts; raises `TooManyGuesses` where too many wait already."""
        turn = self._join(client)
        if turn is not None:
            turn.wait()
        try:
            if self._is_closed:
                raise TooManyGuesses
            yield
        finally:
            self._pass_on()

    def close(self, seconds: float) -> None:
        """Refuse those that wait and all later ones; wait for the turn under way, so many seconds at most."""
        with self._free:
            self._is_closed = True
            self._free.wait_for(lambda: not self._is_taken, seconds)

    def _join(self, client: str) -> threading.Event | None:
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return None
            own = len(self._waiting.get(client, ()))
            if own >= self._per_client or self._count() >= self._of_all:
                raise TooManyGuesses
            turn = threading.Event()
            self._waiting.setdefault(client, deque()).append(turn)
            return turn

    def _count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _pass_on(self) -> None:
        with self._lock:
            if not self._waiting:
                self._is_taken = False
                self._free.notify_all()
                return
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            turn = queue.popleft()
            if queue:
                self._waiting[client] = queue  # at the end
        turn.set()
