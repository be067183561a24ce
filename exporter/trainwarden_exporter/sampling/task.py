"""What is sampled by itself, its status, and what runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainwarden_exporter.core.exposition import AnyFamily, Encoded

# The key of a collector that is sampled as a whole, and of the task that discovers devices.
DISCOVERY = ("", "")


class Collector(Protocol):
    """A source of metrics that is sampled as a whole. A registry of prometheus_client takes it as well."""

    @property
    def name(self) -> str:
        """The value of the label `collector`."""

    def collect(self) -> Iterable[AnyFamily]:
        """Return the families as they are now; raise if they cannot be read."""


@dataclass(frozen=True)
class SampleTask:
    """A collector, or one device of it, with a cadence and a deadline of its own (seconds).

    Attributes:
        collector: value of the label of that name.
        read: returns the families as they are now, the same object as before if nothing changed; raises if they cannot
            be read. Several tasks may return the same families, with other series.
        interval: pause between two samples.
        timeout: after which a sample counts as hung.
        device: value of the label of that name; empty for a task of no device.
        tier: distinguishes two tasks of one device with different intervals.
        close: called once no more samples will be taken.
    """

    collector: str
    read: Callable[[], Iterable[AnyFamily]]
    interval: float
    timeout: float
    device: str = ""
    tier: str = ""
    close: Callable[[], None] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Device and tier, unique among the tasks of one collector."""
        return self.device, self.tier


def single_task(collector: Collector, interval: float, timeout: float) -> SampleTask:
    """Return the task of a collector that is sampled as a whole; its `close`, if any, is called at the end."""
    return SampleTask(collector.name, collector.collect, interval, timeout, close=getattr(collector, "close", None))


class DeviceCollector(Protocol):
    """A source of metrics whose devices are sampled each by itself."""

    @property
    def name(self) -> str:
        """The value of the label `collector`."""

    def collect(self) -> Iterable[AnyFamily]:
        """Discover the devices; return the families of the node: how many there are, and should be."""

    def tasks(self) -> Sequence[SampleTask]:
        """Return a task for each device that the last `collect` found. A known task keeps its first `read`."""

    def close(self) -> None:
        """Release every handle; the next `collect` opens them again."""


@dataclass(frozen=True)
class Status:
    """The status of a task.

    Attributes:
        name: the collector's.
        attempted: a sample was taken, or is over its deadline.
        duration: of the last sample; of one that is over its deadline, so far. Seconds.
        last_success: Unix seconds; None if there was none.
        error: None after a good sample.
        stuck: a sample is over its deadline.
        call: the call of the driver or the system that it hangs in; empty where unknown.
        released: its devices are released on request, which is neither success nor failure.
    """

    name: str
    attempted: bool
    success: bool
    duration: float
    last_success: float | None
    error: str | None
    device: str = ""
    stuck: bool = False
    call: str = ""
    released: bool = False


class ScrapeListener(Protocol):
    """Takes note of scrapes, to have samples taken shortly before the next."""

    def scraped(self, client: str) -> None:
        """Take note of a scrape by the connection `client`, as `host:port`; never waits."""


class CollectorRunner(Protocol):
    """Samples one collector: a `Sampler`, a `DeviceGroup` or a `SubprocessCollector`."""

    @property
    def name(self) -> str:
        """The collector's."""

    @property
    def scrape_listener(self) -> ScrapeListener | None:
        """What to call at each scrape; None where samples are taken at their interval. Runners may share one."""

    def start(self) -> None:
        """Start sampling in the background."""

    def stop(self) -> None:
        """Stop sampling and release what is held; returns within seconds, whatever hangs."""

    def sample_once(self) -> None:
        """Take one sample of each task; one that takes longer than its timeout counts as failed."""

    def statuses(self) -> list[Status]:
        """Return the status of each task."""

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the good samples, each with the seconds since it was taken."""

    def release(self) -> bool:
        """Release every device until `resume`; return False if some handle could not be released."""

    def resume(self) -> None:
        """Open the devices again."""
