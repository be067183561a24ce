"""All collectors of this exporter and the page they make together."""

from __future__ import annotations

import itertools
import operator
import platform
import threading
from typing import TYPE_CHECKING

from trainwarden import __version__
from trainwarden_exporter.core.exposition import Encoder, render
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Collection as Names

    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.sampling.task import CollectorRunner, Status


class Collection:
    """Members that are sampled in the background, and their page."""

    def __init__(self, members: Sequence[CollectorRunner]) -> None:
        self.members = list(members)
        self.released = False
        # Whoever else has something to say of the exporter itself.
        self.also: list[Callable[[Families], None]] = []
        self._encoder = Encoder()
        self._encoder_lock = threading.Lock()
        # Which members were found to repeat a series of another, for exactly these sets of series.
        self._checked: tuple[list[tuple[Sequence[bytes], ...]], dict[int, str]] = ([], {})

    @property
    def names(self) -> list[str]:
        """The collectors."""
        return [member.name for member in self.members]

    def start(self) -> None:
        """Start sampling in the background."""
        for member in self.members:
            member.start()

    def sample_once(self) -> None:
        """Take one sample of each part; one that takes longer than its timeout is left behind as failed."""
        threads = [threading.Thread(target=member.sample_once, daemon=True) for member in self.members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """Let every part end after the sample it is taking."""
        threads = [threading.Thread(target=member.stop, daemon=True) for member in self.members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)

    def release(self) -> list[str]:
        """Let go of every device until `resume`; returns the collectors that could not."""
        holding = [member.name for member in self.members if not member.release()]
        self.released = not holding
        return holding

    def resume(self) -> None:
        """Take the devices again."""
        for member in self.members:
            member.resume()
        self.released = False

    def statuses(self) -> list[Status]:
        """Return how each part of each collector is doing."""
        return [status for member in self.members for status in member.statuses()]

    def page(self, only: Names[str] | None = None, *, openmetrics: bool = False) -> bytes:
        """Return the exposition as it is true now; of the collectors in `only`, where it is given."""
        members = [member for member in self.members if only is None or member.name in only]
        ready = [(member.name, *good) for member in members for good in member.ready()]
        conflicts = self._conflicts([(name, encoded) for name, encoded, _ in ready])
        parts = [(encoded, elapsed) for place, (_, encoded, elapsed) in enumerate(ready) if place not in conflicts]
        own = self._own([status for member in members for status in member.statuses()], set(conflicts.values()))
        with self._encoder_lock:
            parts.append((self._encoder.encode(own), 0.0))
        return render(parts, openmetrics=openmetrics)

    def _conflicts(self, ready: list[tuple[str, Encoded]]) -> dict[int, str]:
        """Return the places of those that repeat a series of an earlier one: a page with both would be refused."""
        sets = [encoded.series for _, encoded in ready]
        known, conflicts = self._checked
        if len(sets) == len(known) and all(map(operator.is_, sets, known)):
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

    def _own(self, statuses: list[Status], conflicting: set[str]) -> list[Family]:
        families = Families()
        by_collector: dict[str, list[Status]] = {}
        for status in statuses:
            by_collector.setdefault(status.name, []).append(status)
        for name, parts in by_collector.items():
            for device, call in sorted({(part.device, part.call) for part in parts if part.stuck}):
                families.add(metrics.TRAINWARDEN_COLLECTOR_STUCK, 1, collector=name, device=device, call=call)
            if any(part.released for part in parts):
                continue  # neither good nor bad
            if all(part.attempted for part in parts):
                good = name not in conflicting and all(part.success for part in parts)
                families.add(metrics.TRAINWARDEN_COLLECTOR_SUCCESS, good, collector=name)
                longest = max(part.duration for part in parts)
                families.add(metrics.TRAINWARDEN_COLLECTOR_DURATION_SECONDS, longest, collector=name)
            times = [part.last_success for part in parts]
            oldest = min((time for time in times if time is not None), default=None) if None not in times else None
            families.add(metrics.TRAINWARDEN_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS, oldest, collector=name)
        families.add(metrics.TRAINWARDEN_EXPORTER_RELEASED, self.released)
        for say in self.also:
            say(families)
        families.add(
            metrics.TRAINWARDEN_BUILD_INFO,
            1,
            version=__version__,
            component="exporter",
            python=platform.python_version(),
        )
        return families.collected()
