"""Collector `amd`: which GPUs there are, and what samples each of them. It runs in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.amd.gpu import Gpu, is_asleep
from trainwarden_exporter.collectors.gpu.amd.library import AmdsmiUnavailable, Library
from trainwarden_exporter.collectors.gpu.amd.summary import VENDOR, Summary
from trainwarden_exporter.collectors.gpu.bus import AMD, gpus_on_bus
from trainwarden_exporter.collectors.gpu.state import DriverTime, GpuState
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.core.metric import Family

# What opening takes at most where all is well; the first look waits so long, to find partitions at once.
OPEN_SECONDS = 3.0


def build(settings: Mapping[str, Any]) -> AmdCollector:
    """Return the collector that the settings describe, see `wiring`."""
    return AmdCollector(
        sysfs=Path(settings["sysfs"]),
        interval=settings["interval"],
        slow_interval=settings["slow_interval"],
        timeout=settings["timeout"],
        expected=settings["expected"],
        by_bus=settings["by_bus"],
    )


class AmdCollector:
    """The GPUs of the bus and those, or the partitions of those, that amdsmi finds, and all that were there once.

    Args:
        sysfs: where the node has it.
        interval, slow_interval, timeout: of the samples of a GPU, seconds.
        expected: how many GPUs there should be; None: as many as are seen at most.
        by_bus: whether a GPU that is on the bus alone counts; not in a container that was given some of a node's.
    """

    name = VENDOR

    def __init__(
        self, *, sysfs: Path, interval: float, slow_interval: float, timeout: float, expected: int | None, by_bus: bool
    ) -> None:
        self._sysfs = sysfs
        self._interval, self._slow_interval, self._timeout = interval, slow_interval, timeout
        self._by_bus = by_bus
        self._library = Library()
        self._spent = DriverTime()
        self._gpus: dict[str, Gpu] = {}
        self._on_bus: set[str] = set()
        self._summary = Summary(
            self._gpus, self._library, self._spent, interval=interval, timeout=timeout, expected=expected
        )

    def collect(self) -> Sequence[Family]:
        """Look which GPUs there are; what is of none of them is sampled as a part, for it says how the GPUs are."""
        on_bus = gpus_on_bus(self._sysfs, AMD)
        self._notice(set(on_bus))
        if not on_bus or not all(is_asleep(self._device(bus)) for bus in on_bus):
            self._library.open()
            self._library.wait(min(OPEN_SECONDS, self._timeout / 2))
        found = {*self._library.handles, *(on_bus if self._by_bus else [])}
        for bus in sorted(found - self._gpus.keys()):
            state = GpuState(str(len(self._gpus)), bus)
            self._gpus[bus] = Gpu(state, self._device(bus), self._library, self._spent, self._timeout)
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        """Return the driver as a whole, the summary, and two tiers of each GPU."""
        parts = [
            SampleTask(self.name, self._driver, self._interval, self._timeout, tier="driver"),
            SampleTask(self.name, self._summary.read, self._interval, self._timeout, tier="node"),
        ]
        for bus, gpu in self._gpus.items():
            parts.append(SampleTask(self.name, gpu.fast, self._interval, self._timeout, bus, "fast"))
            parts.append(SampleTask(self.name, gpu.slow, self._slow_interval, self._timeout, bus, "slow"))
        return parts

    def close(self) -> None:
        """Release every handle."""
        self._library.close()

    def _driver(self) -> Sequence[Family]:
        """Fail where no GPU can be asked; hang where opening the library hangs, so that this is said."""
        self._library.follow()
        if self._library.failure is not None:
            raise AmdsmiUnavailable(self._library.failure)
        return ()

    def _notice(self, on_bus: set[str]) -> None:
        """What came to the bus, or came back, is found only by a library that is opened anew; so is a new driver."""
        came = on_bus - self._on_bus
        if self._library.is_open and (came or all(gpu.state.error is not None for gpu in self._gpus.values())):
            self._library.reopen()
        self._on_bus = on_bus

    def _device(self, bus: str) -> Path:
        """Partitions are numbered where functions of a device are; only the first is on the bus."""
        device = self._sysfs / "bus/pci/devices" / bus
        return device if device.exists() else device.with_name(bus.rpartition(".")[0] + ".0")
