"""Calls to schedulers, side by side: a slow scheduler keeps no other incident waiting, nor the loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, Protocol, TypeVar

from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.observe.world import Clock

T = TypeVar("T")


class Calls(Protocol[T]):
    """Calls that are under way, by the incident that each is for. At most one for each incident."""

    def start(self, incident: str, call: Callable[[], T]) -> None:
        """Begin a call; never called while there is no `room`."""

    def room(self) -> bool:
        """Return whether one more call may begin."""

    def under_way(self, incident: str) -> bool:
        """Return whether the call of an incident has begun and its result has not been taken."""

    def take(self) -> dict[str, T | Exception]:
        """Return the results since the last time, by incident; each once. An error of the call is its result."""

    def finish(self) -> None:
        """Wait for the calls under way, which end by deadlines of their own, and begin no more."""


class ThreadedCalls(Generic[T]):
    """At most `limit` calls at a time, each in a thread; `done` is called in that thread when one has ended."""

    def __init__(self, limit: int, done: Callable[[], None]) -> None:
        self._limit = limit
        self._done = done
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix="call")
        self._under_way: dict[str, Future[T]] = {}

    def start(self, incident: str, call: Callable[[], T]) -> None:
        """Begin a call."""
        future = self._pool.submit(call)
        self._under_way[incident] = future
        future.add_done_callback(lambda _: self._done())

    def room(self) -> bool:
        """Return whether fewer than `limit` calls are under way."""
        return sum(not future.done() for future in self._under_way.values()) < self._limit

    def under_way(self, incident: str) -> bool:
        """Return whether the result of a call is still to be taken."""
        return incident in self._under_way

    def take(self) -> dict[str, T | Exception]:
        """Return what has ended."""
        ended = {incident: future for incident, future in self._under_way.items() if future.done()}
        for incident in ended:
            del self._under_way[incident]
        results: dict[str, T | Exception] = {}
        for incident, future in ended.items():
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            results[incident] = future.result() if error is None else error
        return results

    def finish(self) -> None:
        """Wait until all have ended."""
        wait(self._under_way.values())
        self._pool.shutdown()


class Pace:
    """How soon a call for an incident may be repeated: after `seconds`. In memory: a restart may repeat one early."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._called: dict[str, float] = {}

    def called(self, incident: Incident) -> None:
        """Note a call that was made, or that something spoke against right before it."""
        self._called[incident.id] = self._clock.monotonic()

    def is_too_early(self, incident: Incident) -> bool:
        """Return whether the last call was made less than `seconds` ago."""
        return self._clock.monotonic() - self._called.get(incident.id, float("-inf")) < self._seconds

    def forget(self, incident: Incident) -> None:
        """Forget an incident that is over."""
        self._called.pop(incident.id, None)
