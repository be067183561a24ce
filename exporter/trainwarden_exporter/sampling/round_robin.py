"""Samples many devices that are quick to read one after the other: in a thread for each, waking them takes longer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainwarden_exporter.sampling.sampler import Sampler

# A device that takes longer keeps the thread that is on it, and the others get another one.
PATIENCE_SECONDS = 0.5


class RoundRobinSampler:
    """Takes one sample of each of `samplers()` in each `interval` (seconds); one that hangs costs only itself."""

    def __init__(self, samplers: Callable[[], Sequence[Sampler]], interval: float) -> None:
        self._samplers = samplers
        self._interval = interval
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._under_way = threading.Event()
        self._current: Sampler | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start sampling in the background, and watch that it goes on."""
        threading.Thread(target=self._watch, name="round", daemon=True).start()

    def stop(self) -> None:
        """Let it end after the sample that it is taking."""
        self._stopped.set()
        self._due.set()
        self._under_way.set()

    def wake(self) -> None:
        """Begin the next round now: there are new devices."""
        self._due.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if self._thread is None or self._is_held_up():
                # Not the one before: that is left behind, and ends when its device answers.
                self._thread = threading.Thread(target=self._run, name="round-samples", daemon=True)
                self._thread.start()
            self._under_way.wait(self._interval)  # between two rounds there is nothing to watch
            self._stopped.wait(PATIENCE_SECONDS)

    def _is_held_up(self) -> bool:
        current = self._current
        running = current.running() if current else None
        return running is not None and time.monotonic() - running[0] > PATIENCE_SECONDS

    def _run(self) -> None:
        me = threading.current_thread()
        while not self._stopped.is_set():
            self._due.clear()
            self._under_way.set()
            for sampler in self._samplers():
                if sampler.running() is not None:
                    continue  # another thread hangs on it
                self._current = sampler
                sampler.turn()
                if self._thread is not me:
                    return
            self._current = None
            self._under_way.clear()
            self._due.wait(self._interval)
            if self._thread is not me:
                return
