"""Threads that answer requests: as many as there are requests under way, kept for the next ones for a while."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT_SECONDS = 60.0


class Workers:
    """Runs jobs at once, each in a thread. The threads are daemons: a job that hangs must not keep the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0  # threads that wait for a job, less the jobs that wait for them
        self._is_closed = False

    def run(self, job: Callable[[], None]) -> None:
        """Run a job, which raises nothing, in another thread.

        Raises:
            RuntimeError: no thread is free, and none can be started.
        """
        with self._lock:
            if self._free:
                self._free -= 1
                self._jobs.put(job)
                return
        threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True).start()

    def close(self) -> None:
        """End the threads, each after its job."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._free):
                self._jobs.put(None)
            self._free = 0

    def work_here(self, seconds: float) -> None:
        """Run one job in the calling thread, if one comes within so many seconds.

        While the interpreter ends no thread can be started (Python 3.12).
        """
        job = self._next(seconds)
        if job is not None:
            job()

    def _work(self, job: Callable[[], None] | None) -> None:
        while job is not None:
            job()
            job = self._next()

    def _next(self, seconds: float = _KEPT_SECONDS) -> Callable[[], None] | None:
        with self._lock:
            if self._is_closed:
                return None
            self._free += 1
        try:
            return self._jobs.get(timeout=seconds)
        except Empty:
            with self._lock:
                if self._free:
                    self._free -= 1
                    return None
            return self._jobs.get()  # this thread was counted on meanwhile
