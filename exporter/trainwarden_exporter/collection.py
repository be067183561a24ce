"""Sampling: each collector in a thread of its own, isolated and timed; a scrape only joins what is ready."""

from __future__ import annotations

import logging
import platform
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from trainwarden import __version__
from trainwarden_exporter.catalog import Families
from trainwarden_exporter.exposition import Encoded, encode, encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client.core import Metric

log = logging.getLogger(__name__)


class Collector(Protocol):
    """A source of metrics. It may be registered with a prometheus_client registry as well."""

    @property
    def name(self) -> str:
        """The value of the label `collector`."""

    def collect(self) -> Iterable[Metric]:
        """Return the families as they are now; raise if they cannot be known."""


@dataclass(frozen=True)
class Schedule:
    """A collector, the pause between two of its samples, and the time after which one counts as hung (seconds)."""

    collector: Collector
    interval: float
    timeout: float


@dataclass(frozen=True)
class Status:
    """How a collector is doing. Times of the wall clock in Unix seconds; `error` is None after a good sample."""

    name: str
    attempted: bool
    success: bool
    duration: float
    last_success: float | None
    error: str | None


class FamilyTakenError(ValueError):
    """Two collectors yield the same family; a page with both would be refused as a whole."""


@dataclass(frozen=True)
class _Sample:
    encoded: Encoded = field(default_factory=Encoded)
    taken: float = 0.0
    duration: float = 0.0
    error: str | None = None
    attempted: bool = False
    last_success: float | None = None


class Sampler:
    """Samples one collector again and again. What is read from it never waits for the collector."""

    def __init__(
        self,
        schedule: Schedule,
        claim: Callable[[str, frozenset[str]], None],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.schedule = schedule
        self._claim = claim
        self._wall = wall
        self._monotonic = monotonic
        # Both are replaced as a whole: a reader sees the one or the other, never half of either.
        self._sample = _Sample()
        self._started: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Sample until `stop` is set."""
        while not stop.is_set():
            self.sample()
            stop.wait(self.schedule.interval)

    def sample(self) -> None:
        """Take one sample; whatever the collector raises becomes a failed sample."""
        name = self.schedule.collector.name
        before = self._sample
        taken = self._started = self._monotonic()
        try:
            encoded = encode(self.schedule.collector.collect())
            self._claim(name, encoded.names)
        except BaseException as error:  # a collector must not end its thread, SystemExit included
            message = f"{type(error).__name__}: {error}"
            if message != before.error:
                log.warning("collector %s failed: %s", name, message, exc_info=log.isEnabledFor(logging.DEBUG))
            result = replace(before, encoded=Encoded(), error=message)
        else:
            if before.error is not None:
                log.info("collector %s works again", name)
            result = _Sample(encoded, taken, last_success=self._wall())
        self._sample = replace(result, duration=self._monotonic() - taken, attempted=True)
        self._started = None

    def status(self) -> Status:
        """Return how the collector is doing now; one that hangs has failed."""
        sample, running = self._sample, self._running_for()
        if running is not None and running > self.schedule.timeout:
            error = f"no answer for {running:.0f} s"
            return Status(self.schedule.collector.name, True, False, running, sample.last_success, error)
        return Status(
            self.schedule.collector.name,
            sample.attempted,
            sample.attempted and sample.error is None,
            sample.duration,
            sample.last_success,
            sample.error,
        )

    def page(self) -> bytes:
        """Return the collector's series: those of a good last sample, else none, for stale ones would lie."""
        sample = self._sample
        if not self.status().success:
            return b""
        return sample.encoded.page(self._monotonic() - sample.taken)

    def _running_for(self) -> float | None:
        started = self._started
        return None if started is None else self._monotonic() - started


class Collection:
    """All collectors of this exporter and the page they make together."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self._owners: dict[str, str] = {}
        self._owners_lock = threading.Lock()
        self._stop = threading.Event()
        self.samplers = [Sampler(schedule, self._claim) for schedule in schedules]

    def start(self) -> None:
        """Start sampling in the background."""
        for sampler in self.samplers:
            # A daemon, because one that hangs in a driver or on a dead mount must not keep the process alive.
            name = f"collector-{sampler.schedule.collector.name}"
            threading.Thread(target=sampler.run, args=(self._stop,), name=name, daemon=True).start()

    def sample_once(self) -> None:
        """Take one sample of each collector; one that takes longer than its timeout is left behind as failed."""
        threads = [threading.Thread(target=sampler.sample, daemon=True) for sampler in self.samplers]
        for thread in threads:
            thread.start()
        for thread, sampler in zip(threads, self.samplers, strict=True):
            thread.join(sampler.schedule.timeout + 0.1)

    def stop(self) -> None:
        """Let every collector end after the sample it is taking."""
        self._stop.set()

    def statuses(self) -> list[Status]:
        """Return how each collector is doing."""
        return [sampler.status() for sampler in self.samplers]

    def page(self) -> bytes:
        """Return the exposition as it is true now."""
        return b"".join(sampler.page() for sampler in self.samplers) + encode_text(self._own())

    def _own(self) -> list[Metric]:
        families = Families()
        for status in self.statuses():
            if status.attempted:
                families.add("trainwarden_collector_success", status.success, collector=status.name)
                families.add("trainwarden_collector_duration_seconds", status.duration, collector=status.name)
            families.add(
                "trainwarden_collector_last_success_timestamp_seconds", status.last_success, collector=status.name
            )
        families.add(
            "trainwarden_build_info", 1, version=__version__, component="exporter", python=platform.python_version()
        )
        return families.collected()

    def _claim(self, collector: str, names: frozenset[str]) -> None:
        """Give each family to the first collector that yields it."""
        with self._owners_lock:
            for name in names:
                owner = self._owners.setdefault(name, collector)
                if owner != collector:
                    raise FamilyTakenError(f"the family {name} already comes from the collector {owner}")
