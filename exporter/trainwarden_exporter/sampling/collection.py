"""All collectors of this exporter, and the page of their samples."""

from __future__ import annotations

import itertools
import platform
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden import __version__
from trainwarden_exporter.core.exposition import Encoder, are_same_objects, render
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Collection as Names

    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.sampling.task import CollectorRunner, Status


# A page is given again for so long, unless a sample was taken meanwhile: its ages are behind by no more.
_KEPT_SECONDS = 0.1


@dataclass(frozen=True)
class _Page:
    """A page and what it was made of; `times`: when it was made, by `time.monotonic`, and the age of each sample."""

    body: bytes
    samples: list[weakref.ref[Encoded]]
    statuses: list[Status]
    is_released: bool
    times: list[float]

    def holds(self, samples: list[Encoded], statuses: list[Status], times: list[float], *, is_released: bool) -> bool:
        """Return whether it still is the page of these samples."""
        return (
            are_same_objects(samples, [sample() for sample in self.samples])
            and statuses == self.statuses
            and is_released == self.is_released
            and all(abs(now - then) < _KEPT_SECONDS for now, then in zip(times, self.times, strict=True))
        )


class Collection:
    """Runs collectors in the background and renders their page.

    Args:
        runners: the collectors of the page.
        sources: further collectors, whose samples those of the page show; scrapes are passed on to them, nothing else.
    """

    def __init__(self, runners: Sequence[CollectorRunner], sources: Sequence[CollectorRunner] = ()) -> None:
        self.runners = list(runners)
        self._sources = list(sources)
        self.released = False
        # Further series of the exporter itself, added to each page.
        self.extra: list[Callable[[Families], None]] = []
        self._encoder = Encoder()
        self._encoder_lock = threading.Lock()
        # The collectors that repeat a series of another, for exactly these sets of series.
        self._checked: tuple[list[tuple[Sequence[bytes], ...]], dict[int, str]] = ([], {})
        # The last page of each format. Of clients that ask for many at once one page is made.
        self._pages: dict[bool, _Page] = {}

    @property
    def names(self) -> list[str]:
        """The collectors."""
        return [runner.name for runner in self.runners]

    def start(self) -> None:
        """Start sampling in the background."""
        for runner in self.runners:
            runner.start()

    def sample_once(self) -> None:
        """Take one sample of each task; one that takes longer than its timeout counts as failed."""
        threads = [threading.Thread(target=runner.sample_once, daemon=True) for runner in self.runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """Stop every task after the sample that it is taking."""
        threads = [threading.Thread(target=runner.stop, daemon=True) for runner in self.runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)

    def release(self) -> list[str]:
        """Release every device until `resume`; return the collectors that could not."""
        holding = [runner.name for runner in self.runners if not runner.release()]
        self.released = not holding
        return holding

    def resume(self) -> None:
        """Open the devices again."""
        for runner in self.runners:
            runner.resume()
        self.released = False

    def statuses(self) -> list[Status]:
        """Return the status of each task of each collector."""
        return [status for runner in self.runners for status in runner.statuses()]

    def page(self, only: Names[str] | None = None, *, openmetrics: bool = False) -> bytes:
        """Return the exposition as of now, or a tenth of a second before; of the collectors in `only`, where given."""
        runners = [runner for runner in self.runners if only is None or runner.name in only]
        ready = [(runner.name, *good) for runner in runners for good in runner.ready()]
        statuses = [status for runner in runners for status in runner.statuses()]
        sampled, times = [encoded for _, encoded, _ in ready], [time.monotonic(), *(elapsed for *_, elapsed in ready)]
        kept = self._pages.get(openmetrics)
        if kept is not None and kept.holds(sampled, statuses, times, is_released=self.released):
            return kept.body
        # None is given again that is older, and two of the same size would be in memory.
        self._pages = {
            form: page for form, page in self._pages.items() if abs(times[0] - page.times[0]) < _KEPT_SECONDS
        }
        conflicts = self._conflicts([(name, encoded) for name, encoded, _ in ready])
        samples = [(encoded, elapsed) for place, (_, encoded, elapsed) in enumerate(ready) if place not in conflicts]
        own = self._own_families(statuses, set(conflicts.values()))
        with self._encoder_lock:
            samples.append((self._encoder.encode(own), 0.0))
        body = render(samples, openmetrics=openmetrics)
        self._pages[openmetrics] = _Page(body, list(map(weakref.ref, sampled)), statuses, self.released, times)
        return body

    def scraped(self, only: Names[str] | None, client: str) -> None:
        """Take note of a scrape, of the collectors in `only` where it is given, by the connection `client`."""
        listening = [each for each in self.runners if only is None or each.name in only]
        if any(each.scrape_listener is None for each in listening):
            listening = [*self.runners, *self._sources]  # one that shows what others have sampled needs theirs
        for listener in {each.scrape_listener for each in listening if each.scrape_listener is not None}:
            listener.scraped(client)

    def _conflicts(self, ready: list[tuple[str, Encoded]]) -> dict[int, str]:
        """Return the places of those that repeat a series of an earlier one: a page with both would be refused."""
        sets = [encoded.series for _, encoded in ready]
        known, conflicts = self._checked
        if are_same_objects(sets, known):
            return conflicts
        seen: set[bytes] = set()
        found: dict[int, str] = {}
        for place, (name, encoded) in enumerate(ready):
            if seen.isdisjoint(itertools.chain.from_iterable(encoded.series)):
                seen.update(*encoded.series)
            else:
                found[place] = name
        self._checked = (sets, found)
        return found

    def _own_families(self, statuses: list[Status], conflicting: set[str]) -> list[Family]:
        families = Families()
        by_collector: dict[str, list[Status]] = {}
        for status in statuses:
            by_collector.setdefault(status.name, []).append(status)
        for name, of_collector in by_collector.items():
            for device, call in sorted({(status.device, status.call) for status in of_collector if status.stuck}):
                families.add(metrics.TRAINWARDEN_COLLECTOR_STUCK, 1, collector=name, device=device, call=call)
            if any(status.released for status in of_collector):
                continue  # neither good nor bad
            if all(status.attempted for status in of_collector):
                good = name not in conflicting and all(status.success for status in of_collector)
                families.add(metrics.TRAINWARDEN_COLLECTOR_SUCCESS, good, collector=name)
                longest = max(status.duration for status in of_collector)
                families.add(metrics.TRAINWARDEN_COLLECTOR_DURATION_SECONDS, longest, collector=name)
            times = [status.last_success for status in of_collector]
            oldest = min((time for time in times if time is not None), default=None) if None not in times else None
            families.add(metrics.TRAINWARDEN_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS, oldest, collector=name)
        families.add(metrics.TRAINWARDEN_EXPORTER_RELEASED, self.released)
        for add_series in self.extra:
            add_series(families)
        families.add(
            metrics.TRAINWARDEN_BUILD_INFO,
            1,
            version=__version__,
            component="exporter",
            python=platform.python_version(),
        )
        return families.collected()
