"""Durable storage of what several threads receive: what waits for its turn is committed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Waiting(Generic[T]):
    item: T
    is_done: bool = False
    error: Exception | None = None


class Intake(Generic[T]):
    """Stores items by `store`, all of a call in one transaction. A commit waits for the disk, however much it holds."""

    def __init__(self, store: Callable[[Sequence[T]], None]) -> None:
        self._store = store
        self._turn = threading.Lock()
        self._lock = threading.Lock()  # guards the list
        self._waiting: list[_Waiting[T]] = []

    def take(self, item: T) -> None:
        """Store an item; durable when it returns. Raises what `store` raises for it alone."""
        mine = _Waiting(item)
        with self._lock:
            self._waiting.append(mine)
        with self._turn:
            if not mine.is_done:
                with self._lock:
                    others, self._waiting = [each for each in self._waiting if each is not mine], []
                self._commit([*others, mine])
        if mine.error is not None:
            raise mine.error

    def _commit(self, batch: Sequence[_Waiting[T]]) -> None:
        try:
            self._store([each.item for each in batch])
        except Exception as error:  # noqa: BLE001  # of whichever of them: it is raised where it belongs
            if len(batch) > 1:
                for each in batch:
                    self._commit([each])
                return
            batch[0].error = error
        for each in batch:
            each.is_done = True
