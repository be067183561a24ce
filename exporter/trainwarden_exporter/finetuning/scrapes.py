"""A page without a sampling thread: each scrape calls the collector, and is counted."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.core.exposition import Encoder
from trainwarden_exporter.sampling.task import Status

if TYPE_CHECKING:
    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.sampling.task import Collector


class Scrapes:
    """The scrapes of a page: how many there were, and how long it is worth to wait for the next one."""

    # Of the interval between the last two.
    _PATIENCE = 2.5

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: float | None = None
        self._interval: float | None = None
        self.count = 0

    def note(self) -> None:
        """Note a scrape."""
        with self._lock:
            now = time.monotonic()
            self._interval = None if self._last is None else now - self._last
            self._last = now
            self.count += 1

    def patience(self, seconds: float) -> float:
        """Return how many seconds to wait for the next scrape; 0 without one before: no scraper is there then.

        Args:
            seconds: how long at most; less where the scrapes come often.
        """
        with self._lock:
            if self._last is None:
                return 0.0
            return seconds if self._interval is None else min(seconds, max(1.0, self._PATIENCE * self._interval))


class ScrapeTimeRunner:
    """A `CollectorRunner` without a thread: each scrape calls the collector, which must neither wait nor raise."""

    scrape_listener = None

    def __init__(self, collector: Collector, scrapes: Scrapes) -> None:
        self.name = collector.name
        self._scrapes = scrapes
        self._collector = collector
        self._encoder = Encoder()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Nothing runs in the background."""

    def stop(self) -> None:
        """Nothing runs in the background."""

    def sample_once(self) -> None:
        """Nothing is sampled ahead."""

    def statuses(self) -> list[Status]:
        """Return a success."""
        return [Status(self.name, True, True, 0.0, time.time(), None)]

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the current values."""
        with self._lock:
            encoded = self._encoder.encode(self._collector.collect())
        self._scrapes.note()
        return [(encoded, 0.0)]

    def release(self) -> bool:
        """Nothing is held."""
        return True

    def resume(self) -> None:
        """Nothing was released."""
