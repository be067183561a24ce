"""What is sampled by itself, and how it is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainwarden_exporter.core.exposition import AnyFamily, Encoded

# The key of a whole collector, and of the part that looks which devices there are.
LOOK = ("", "")


class Collector(Protocol):
    """A source of metrics that is sampled as a whole. A registry of prometheus_client takes it as well."""

    @property
    def name(self) -> str:
        """The value of the label `collector`."""

    def collect(self) -> Iterable[AnyFamily]:
        """Return the families as they are now; raise if they cannot be known."""


@dataclass(frozen=True)
class SampleTask:
    """A collector, or one device of it, with a cadence and a deadline of its own (seconds).

    Attributes:
        collector: value of the label of that name.
        read: returns the families as they are now, the very object of before if nothing is new; raises if they cannot
            be known. Several parts may return the same families, with other series.
        interval: pause between two samples.
        timeout: after which a sample counts as hung.
        device: value of the label of that name; empty for what is of no device.
        tier: tells two cadences of one device apart.
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
        """Tells the parts of one collector apart."""
        return self.device, self.tier


def whole(collector: Collector, interval: float, timeout: float) -> SampleTask:
    """Return a collector as one part; if it has a `close`, it is called in the end."""
    return SampleTask(collector.name, collector.collect, interval, timeout, close=getattr(collector, "close", None))


class DeviceCollector(Protocol):
    """A source of metrics whose devices are sampled each by itself."""

    @property
    def name(self) -> str:
        """The value of the label `collector`."""

    def collect(self) -> Iterable[AnyFamily]:
        """Look which devices there are, and return what is of none of them: how many there are, and should be."""

    def parts(self) -> Sequence[SampleTask]:
        """Return the devices that the last `collect` found. A part that was there before keeps its first `read`."""

    def close(self) -> None:
        """Release every handle; the next `collect` takes them again."""


@dataclass(frozen=True)
class Status:
    """How a part is doing.

    Attributes:
        name: the collector's.
        attempted: a sample was taken, or is over its deadline.
        duration: of the last sample; of one that is over its deadline, so far. Seconds.
        last_success: Unix seconds; None if there was none.
        error: None after a good sample.
        stuck: a sample is over its deadline.
        call: of the driver or the system, in which it has been since; empty where not known.
        released: it has let go of its devices because it was told to, which is neither good nor bad.
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


class CollectorRunner(Protocol):
    """What a collection is made of: one or several parts that belong together."""

    @property
    def name(self) -> str:
        """The collector's."""

    def start(self) -> None:
        """Start sampling in the background."""

    def stop(self) -> None:
        """Ask it to end, and let go of what it holds; comes back within seconds, whatever hangs."""

    def sample_once(self) -> None:
        """Take one sample of each part; one that takes longer than its timeout is left behind as failed."""

    def statuses(self) -> list[Status]:
        """Return how each part is doing."""

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return the good samples, each with the seconds since it was taken."""

    def release(self) -> bool:
        """Let go of every device until `resume`; False if some handle could not be released."""

    def resume(self) -> None:
        """Take the devices again."""
