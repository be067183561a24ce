"""Looks at many things, any of which may lie on a file system that never answers."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.sampling import calls, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trainwarden_exporter.core.metric import Families

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")

PATIENCE_SECONDS = 2.0
# Each costs a thread that cannot be ended. Where more hang the file system of all is gone, and the collector says so.
MAX_BLOCKED = 16


class TooManyBlocked(Exception):
    """So many do not answer that it is not worth trying more."""


@dataclass(frozen=True)
class Blocked(Generic[K]):
    """What does not answer, the call that it is in, and for how many seconds."""

    key: K
    call: str
    seconds: float


class _Walk(Generic[K, R]):
    """One thread's way through what is left."""

    def __init__(self, left: deque[K], look: Callable[[K], R]) -> None:
        self._left, self._look = left, look
        self._lock = threading.Lock()
        self._given_up = False
        self.at: tuple[K, float] | None = None
        self.results: dict[K, R] = {}
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looker", daemon=True)
        self._thread.start()

    @property
    def call(self) -> str:
        """What it is doing."""
        return calls.current(self._thread.ident)

    def give_up(self, patience: float) -> deque[K] | None:
        """Return what is left if one takes too long; from then on nothing that comes back counts."""
        with self._lock:
            if self.at is None or time.monotonic() - self.at[1] <= patience:
                return None
            self._given_up = True
            return self._left

    def _run(self) -> None:
        try:
            while (key := self._next()) is not None:
                found = self._look(key)
                with self._lock:
                    if self._given_up:
                        return
                    self.at, self.results[key] = None, found
        except BaseException as error:  # noqa: BLE001  # for whoever asked; one that was given up tells nobody
            self.error = error
        finally:
            calls.leave()
            self.done.set()

    def _next(self) -> K | None:
        with self._lock:
            if not self._left:
                return None
            key = self._left.popleft()
            self.at = (key, time.monotonic())
            return key


class BlockingIoPool(Generic[K]):
    """Does the looking in threads of its own."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = patience
        self._stuck: dict[K, _Walk[K, object]] = {}

    @property
    def blocked(self) -> list[Blocked[K]]:
        """What did not answer at the last look, and is still used by the thread that waits for it."""
        now = time.monotonic()
        return [Blocked(key, walk.call, now - walk.at[1]) for key, walk in self._stuck.items() if walk.at is not None]

    def hangs(self, key: K) -> bool:
        """Whether it is one of those `blocked`."""
        return key in self._stuck

    def by_turns(
        self,
        keys: Iterable[K],
        first: Callable[[K], list[T]],
        more: Callable[[K, list[T]], list[T]],
        goes_on: Callable[[], bool],
    ) -> list[K]:
        """Look at each, then again and again at those with something left, until that is all or `goes_on` says no.

        Args:
            keys: what is looked at.
            first: looks at one; returns what is left to be done of it.
            more: does a part of what is left; returns the rest.
            goes_on: asked before each round.

        Returns:
            Those of which nothing is left.

        Raises:
            TooManyBlocked: as `look`.
        """
        left = self.look(keys, first)
        done = [key for key, rest in left.items() if not rest]
        while (left := {key: rest for key, rest in left.items() if rest}) and goes_on():
            left = self.look(left, partial(_more, more, left))
            done += [key for key, rest in left.items() if not rest]
        return done

    def look(self, keys: Iterable[K], look: Callable[[K], R]) -> dict[K, R]:
        """Return what `look` finds in each that answers; what it raises ends all.

        One that was given up is left alone until its thread has come back.

        Raises:
            TooManyBlocked: more than `MAX_BLOCKED` do not answer.
        """
        for key in [key for key, walk in self._stuck.items() if walk.done.is_set()]:
            del self._stuck[key]
        found: dict[K, R] = {}
        left = deque(key for key in keys if key not in self._stuck)
        patience = self._patience
        while left:
            walk = _Walk(left, look)
            rest = _wait(walk, patience)
            found |= walk.results
            if walk.error is not None:
                raise walk.error
            if rest is None or walk.at is None:
                break
            self._stuck[walk.at[0]] = walk  # type: ignore[assignment]  # what it finds is of no interest any more
            left = rest
            # Several that hang at once are of one file system, and together must not take longer than a look may.
            patience = self._patience / 4
            if len(self._stuck) > MAX_BLOCKED:
                raise TooManyBlocked(f"more than {MAX_BLOCKED} do not answer")
        return found


def _more(more: Callable[[K, list[T]], list[T]], left: Mapping[K, list[T]], key: K) -> list[T]:
    return more(key, left[key])


def _wait(walk: _Walk[K, R], patience: float) -> deque[K] | None:
    """Wait until the walk is done; returns what is left if it hangs."""
    while not walk.done.wait(patience / 4):
        rest = walk.give_up(patience)
        if rest is not None:
            return rest
    return None


def add_blocked(families: Families, collector: str, calls_by_run: Mapping[str, str]) -> None:
    """Name the runs that do not answer, and the call that each is in, as devices would be named."""
    for run_id, call in calls_by_run.items():
        families.add(metrics.TRAINWARDEN_COLLECTOR_STUCK, 1, collector=collector, device=run_id, call=label_text(call))
