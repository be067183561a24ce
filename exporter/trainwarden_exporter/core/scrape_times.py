"""When scrapes come, learned from those that came, so that a sample is taken shortly before each and not more often."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# A sample is due by then at the latest: a reader of logs must not fall far behind, however seldom scrapes come.
LONGEST_SECONDS = 60.0
# The interval of what sums up the samples of other tasks, as a share of theirs: it is due after them for each scrape.
SUMMED_SHARE = 0.8
# So long samples are taken at their own interval: while no scraper can be known yet, and after a change.
LEARNING_SECONDS = 65.0
SETTLING_SECONDS = 10.0
# A scrape may come so much later than expected.
_LATE_SECONDS = 0.5
_FORGOTTEN_SECONDS = 400.0
_MISSED = 3
# A sample that becomes due earlier by no more than this is taken when it was due before.
_SOON_SECONDS = 0.25
# Connections and hosts that are remembered, those that scraped last: each scrape and each sampler looks at all of them.
_MOST = 128


@dataclass
class _Scraper:
    last: float
    gaps: list[float] = field(default_factory=list)

    @property
    def period(self) -> float | None:
        """Seconds between two scrapes; the shorter of the last two gaps, for one scrape may be missed."""
        return min(self.gaps) if self.gaps else None


class ScrapeTimes:
    """Computes for samplers when their next sample is due. Thread-safe; times are of `monotonic`.

    A sample serves the scrapes of the time in which it is no older than its interval. At first, and for a while after
    what is shown has changed, samples are taken at their interval. A scrape that finds an older sample has the next one
    taken at once.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._scrapers: dict[str, _Scraper] = {}  # the one that scraped last comes last
        self._last = float("-inf")
        self._eager_until = monotonic() + LEARNING_SECONDS
        # Of each thread that waits: the arguments of `due`, and what it returned.
        self._waiting: dict[int, tuple[float, float, float, float]] = {}

    def scraped(self, client: str) -> None:
        """Take note of a scrape; `client` is the connection that it came by, as `host:port`."""
        now = self._monotonic()
        with self._changed:
            # A scraper that keeps its connection is known by it, another by its host.
            keys = [client] if client in self._scrapers else [client, client.rpartition(":")[0]]
            for key in keys:
                known = self._scrapers.pop(key, None)
                gaps = [] if known is None else [*known.gaps[-1:], now - known.last]
                self._scrapers[key] = _Scraper(now, gaps)
            while (first := next(iter(self._scrapers))) and (
                len(self._scrapers) > _MOST or now - self._scrapers[first].last > _FORGOTTEN_SECONDS
            ):
                del self._scrapers[first]
            self._last = now
            # Most scrapes come as expected: to wake all threads for each costs more than some collectors do.
            if any(self.due(*times) < due - _SOON_SECONDS for *times, due in self._waiting.values()):
                self._changed.notify_all()

    def shown_has_changed(self) -> None:
        """Have samples taken at their interval for a while: what one collector finds, others may follow up."""
        with self._changed:
            self._eager_until = max(self._eager_until, self._monotonic() + SETTLING_SECONDS)
            self._changed.notify_all()

    def wake(self) -> None:
        """Have `wait` look again at what ends it."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, begun: float, ended: float, interval: float, stop: threading.Event) -> None:
        """Wait until the next sample is due, or `stop` is set and `wake` called; the arguments are those of `due`."""
        thread = threading.get_ident()
        with self._changed:
            while not stop.is_set() and (seconds := (due := self.due(begun, ended, interval)) - self._monotonic()) > 0:
                self._waiting[thread] = (begun, ended, interval, due)
                self._changed.wait(seconds)
            self._waiting.pop(thread, None)

    def due(self, begun: float, ended: float, interval: float) -> float:
        """Return when the next sample is due.

        Args:
            begun: when the last one was begun.
            ended: when it was taken.
            interval: the shortest pause between two, and the age that one may have at a scrape; seconds.
        """
        now, earliest, serves_until = self._monotonic(), ended + interval, begun + interval + _LATE_SECONDS
        if now < self._eager_until or self._last > serves_until:
            return earliest
        due = max(begun + LONGEST_SECONDS, earliest)
        for scraper in self._scrapers.values():
            period = scraper.period
            if period and now - scraper.last < _MISSED * period + interval:
                # The first scrape to come that the last sample does not serve.
                after = scraper.last + max(1, math.floor((serves_until - scraper.last) / period) + 1) * period
                due = min(due, after - interval)
        return max(due, earliest)
