"""Calls functions that may block for ever, on many keys, some of which may lie on a file system that never answers."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from trainwarden.redaction import label_text
from trainwarden_exporter.sampling import calls, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trainwarden_exporter.core.metric import Families

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")

TIMEOUT_SECONDS = 2.0
# Each costs a thread that cannot be ended. Where more are blocked, all of the file system is gone: the sample fails.
# Where keys belong to users, a user with so many blocked is passed over, and only so many of all users fail the sample.
MAX_BLOCKED = 16
MAX_BLOCKED_OF_ALL = 64


class TooManyBlocked(Exception):
    """So many calls are blocked that more are not tried."""


@dataclass(frozen=True)
class Blocked(Generic[K]):
    """A key whose call is blocked, the system call that it is in, and since when in seconds."""

    key: K
    call: str
    seconds: float


class _Worker(Generic[K, R]):
    """One thread that calls `function` on each pending key."""

    def __init__(self, pending: deque[K], function: Callable[[K], R]) -> None:
        self._pending, self._function = pending, function
        self._lock = threading.Lock()
        self._abandoned = False
        self.current: tuple[K, float] | None = None
        self.results: dict[K, R] = {}
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blocking-io", daemon=True)
        self._thread.start()

    @property
    def call(self) -> str:
        """The system call that the thread is in."""
        return calls.current(self._thread.ident)

    def abandon(self, timeout: float) -> deque[K] | None:
        """Return the pending keys if the current call takes longer than `timeout`; its result is then discarded."""
        with self._lock:
            if self.current is None or time.monotonic() - self.current[1] <= timeout:
                return None
            self._abandoned = True
            return self._pending

    def _run(self) -> None:
        try:
            while (key := self._next()) is not None:
                result = self._function(key)
                with self._lock:
                    if self._abandoned:
                        return
                    self.current, self.results[key] = None, result
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self.error = error
        finally:
            calls.leave()
            self.done.set()

    def _next(self) -> K | None:
        with self._lock:
            if not self._pending:
                return None
            key = self._pending.popleft()
            self.current = (key, time.monotonic())
            return key


class BlockingIoPool(Generic[K]):
    """Runs blocking calls in threads of its own; a call that blocks costs its key alone.

    Args:
        timeout: after which a call counts as blocked, seconds.
        owner: whose a key is; None: all keys are of one.

    Attributes:
        passed_over: keys that the last call of `map` did not try, because too many of their owner are blocked.
    """

    def __init__(self, timeout: float = TIMEOUT_SECONDS, owner: Callable[[K], int] | None = None) -> None:
        self._timeout = timeout
        self._owner: Callable[[K], int] = owner or _nobody
        self._stuck: dict[K, _Worker[K, object]] = {}
        self.passed_over: list[K] = []

    @property
    def blocked(self) -> list[Blocked[K]]:
        """The keys whose calls have not returned yet."""
        now = time.monotonic()
        return [
            Blocked(key, worker.call, now - worker.current[1])
            for key, worker in self._stuck.items()
            if worker.current is not None
        ]

    def is_blocked(self, key: K) -> bool:
        """Return whether the key is one of those `blocked`."""
        return key in self._stuck

    def map_in_rounds(
        self,
        keys: Iterable[K],
        first: Callable[[K], list[T]],
        more: Callable[[K, list[T]], list[T]],
        proceed: Callable[[], bool],
    ) -> list[K]:
        """Work on each key in rounds, so that one with much to do does not delay the others.

        Args:
            keys: what to work on.
            first: begins with a key; returns its remaining work.
            more: does a part of the remaining work; returns the rest.
            proceed: called before each further round; false ends the work.

        Returns:
            The keys without remaining work.

        Raises:
            TooManyBlocked: as `map`.
        """
        remaining = self.map(keys, first)
        done = [key for key, rest in remaining.items() if not rest]
        while (remaining := {key: rest for key, rest in remaining.items() if rest}) and proceed():
            remaining = self.map(remaining, partial(_more, more, remaining))
            done += [key for key, rest in remaining.items() if not rest]
        return done

    def map(self, keys: Iterable[K], function: Callable[[K], R]) -> dict[K, R]:
        """Return the result of `function` for each key whose call returns in time; raise whatever it raises.

        A blocked key is skipped until its call has returned.

        Raises:
            TooManyBlocked: `MAX_BLOCKED` calls of every owner are blocked, or more than `MAX_BLOCKED_OF_ALL`.
        """
        for key in [key for key, worker in self._stuck.items() if worker.done.is_set()]:
            del self._stuck[key]
        results: dict[K, R] = {}
        self.passed_over = []
        pending = self._within_limits(deque(key for key in keys if key not in self._stuck), results)
        timeout = self._timeout
        while pending:
            worker = _Worker(pending, function)
            rest = _wait(worker, timeout)
            results |= worker.results
            if worker.error is not None:
                raise worker.error
            if rest is None or worker.current is None:
                break
            self._stuck[worker.current[0]] = worker  # type: ignore[assignment]  # its result is discarded
            pending = self._within_limits(rest, results)
            # Several that block at once are of one file system: together they must not exceed the sample's deadline.
            timeout = self._timeout / 4
        return results

    def _within_limits(self, pending: deque[K], results: Mapping[K, object]) -> deque[K]:
        """Return the keys of owners of whom not too many are blocked; a new deque if there are others."""
        blocked = Counter(map(self._owner, self._stuck))
        over = {owner for owner, number in blocked.items() if number >= MAX_BLOCKED}
        if not over or not pending:
            return pending
        tried = deque(key for key in pending if self._owner(key) not in over)
        self.passed_over += [key for key in pending if self._owner(key) in over]
        if (self.passed_over and not tried and not results) or len(self._stuck) > MAX_BLOCKED_OF_ALL:
            raise TooManyBlocked(f"{len(self._stuck)} do not answer")
        return tried


def _nobody(_: object) -> int:
    return 0


def _more(more: Callable[[K, list[T]], list[T]], remaining: Mapping[K, list[T]], key: K) -> list[T]:
    return more(key, remaining[key])


def _wait(worker: _Worker[K, R], timeout: float) -> deque[K] | None:
    """Wait until the worker is done; return the pending keys if it is blocked."""
    while not worker.done.wait(timeout / 4):
        rest = worker.abandon(timeout)
        if rest is not None:
            return rest
    return None


def add_blocked(families: Families, collector: str, calls_by_run: Mapping[str, str]) -> None:
    """Add the runs whose files do not answer, with the call that each is in, as stuck devices."""
    for run_id, call in calls_by_run.items():
        families.add(metrics.TRAINWARDEN_COLLECTOR_STUCK, 1, collector=collector, device=run_id, call=label_text(call))
