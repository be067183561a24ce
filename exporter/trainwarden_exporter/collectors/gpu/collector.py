"""Collectors `nvidia` and `amd`: which GPUs there are, and the tasks that sample them. They run in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import gpus_on_bus
from trainwarden_exporter.collectors.gpu.device import WAIT_SHARE, DriverTime, GpuDevice
from trainwarden_exporter.collectors.gpu.node import GpuNode
from trainwarden_exporter.collectors.gpu.state import GpuState
from trainwarden_exporter.core.state_file import StateFile
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.driver import GpuDriver
    from trainwarden_exporter.core.metric import Family

# A look waits so long for the library to open: where all is well the GPUs are sampled at once. Where no GPU is known
# without the library it waits longer.
OPEN_SECONDS = 3.0


def build(settings: Mapping[str, Any]) -> GpuCollector:
    """Return the collector of one vendor; `settings` as `spec` writes them."""
    sysfs = Path(settings["sysfs"])
    driver: GpuDriver
    # Each child imports its own vendor's library, and the parent none.
    if settings["vendor"] == "nvidia":
        from trainwarden_exporter.collectors.gpu.nvml.driver import NvmlDriver  # noqa: PLC0415

        kept = settings.get("xid_state")
        state = StateFile(Path(kept) if kept else None, writable=not settings.get("once"))
        driver = NvmlDriver(Path(settings["kernel_log"]), state=state, boot_id=settings.get("boot_id", ""))
    else:
        from trainwarden_exporter.collectors.gpu.amdsmi.driver import AmdsmiDriver  # noqa: PLC0415

        driver = AmdsmiDriver(sysfs)
    return GpuCollector(
        driver,
        sysfs=sysfs,
        interval=settings["interval"],
        slow_interval=settings["slow_interval"],
        timeout=settings["timeout"],
        expected=settings["expected"],
        by_bus=settings["by_bus"],
    )


class GpuCollector:
    """One vendor's GPUs: those on the bus, those that the driver lists, and those that were there once.

    Args:
        driver: of the vendor.
        sysfs: where it is mounted.
        interval, slow_interval, timeout: of the samples of a GPU, seconds.
        expected: how many GPUs there should be; None: as many as were seen at most.
        by_bus: whether a GPU that is on the bus alone counts; not in a container that was given some of a node's.
    """

    def __init__(
        self,
        driver: GpuDriver,
        *,
        sysfs: Path,
        interval: float,
        slow_interval: float,
        timeout: float,
        expected: int | None,
        by_bus: bool,
    ) -> None:
        self.name = driver.vendor
        self._driver = driver
        self._sysfs = sysfs
        self._interval, self._slow_interval, self._timeout = interval, slow_interval, timeout
        self._by_bus = by_bus
        self._spent = DriverTime()
        # Every GPU seen so far, by bus address: one that is lost stays.
        self._states: dict[str, GpuState] = {}
        self._devices: dict[str, GpuDevice] = {}
        self._node = GpuNode(self._states, driver, self._spent, interval=interval, timeout=timeout, expected=expected)

    def collect(self) -> Sequence[Family]:
        """Look which GPUs there are. Return no series: those of the node are a task of their own, for they wait."""
        on_bus = gpus_on_bus(self._sysfs, self._driver.pci_vendor)
        counted = set(on_bus) if self._by_bus else set()
        known = bool(self._states or counted)
        self._driver.look(on_bus, self._states.values(), known=known)
        self._driver.wait(min(OPEN_SECONDS, self._timeout / 2) if known else WAIT_SHARE * self._timeout)
        for bus in sorted({*counted, *self._driver.found} - self._states.keys()):
            self._states[bus] = GpuState(str(len(self._states)), bus)
        if self._driver.generation:  # until then no GPU can be sampled, and the task of the driver hangs or fails
            for bus, state in self._states.items():
                if bus not in self._devices:
                    self._devices[bus] = GpuDevice(
                        state, self._driver, self._spent, slow_interval=self._slow_interval, timeout=self._timeout
                    )
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        """Return two tiers of each GPU, the driver as a whole, its own tasks, and the node."""
        tasks = []
        for bus, gpu in self._devices.items():
            tasks.append(SampleTask(self.name, gpu.fast, self._interval, self._timeout, bus, "fast"))
            tasks.append(SampleTask(self.name, gpu.slow, self._interval, self._timeout, bus, "slow"))
        return [
            *tasks,
            SampleTask(self.name, self._open, self._interval, self._timeout, tier="driver"),
            *(
                SampleTask(self.name, task.read, task.interval, self._timeout, tier=task.tier)
                for task in self._driver.node_tasks()
            ),
            SampleTask(self.name, self._node.read, self._interval, self._timeout, tier="node"),
        ]

    def close(self) -> None:
        """Release every handle; waits while opening the library hangs."""
        self._driver.follow()
        self._driver.close()

    def _open(self) -> Sequence[Family]:
        """Fail where no GPU can be read; hang where opening the library hangs, so that the page names the call."""
        self._driver.follow()
        failure = self._driver.failure
        if failure is not None:
            raise failure.again()
        return ()
