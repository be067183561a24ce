"""Collectors `nvidia` and `amd`: which GPUs there are, and the tasks that sample them. They run in a child process."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import gpus_on_bus
from trainwarden_exporter.collectors.gpu.device import DriverTime, GpuDevice
from trainwarden_exporter.collectors.gpu.node import GpuNode
from trainwarden_exporter.collectors.gpu.roster import Roster, RosterGpu, roster_gpus
from trainwarden_exporter.collectors.gpu.state import WAIT_SHARE, GpuState
from trainwarden_exporter.collectors.gpu.sums import GpuSums
from trainwarden_exporter.core.scrape_times import SUMMED_SHARE
from trainwarden_exporter.core.state_file import StateFile, is_held_by
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.driver import GpuDriver, OpenGpu
    from trainwarden_exporter.core.metric import Family

# A look waits so long for the library to open: where all is well the GPUs are sampled at once. Where no GPU is known
# without the library it waits longer.
OPEN_SECONDS = 3.0
# The name under which the exporter keeps the roster beyond the end of this process.
ROSTER = "roster"


def build(settings: Mapping[str, Any]) -> GpuCollector:
    """Return the collector of one vendor; `settings` as `spec` writes them."""
    sysfs = Path(settings["sysfs"])
    driver: GpuDriver
    # Each child imports its own vendor's library, and the parent none.
    if settings["vendor"] == "nvidia":
        from trainwarden_exporter.collectors.gpu.nvml.driver import NvmlDriver  # noqa: PLC0415

        match settings.get("xid_state"):
            case {"path": str(path), "writable": bool(writable), "machine": str(machine), "holder": str(holder)}:
                may_write = partial(is_held_by, holder, Path(path).parent)
                state = StateFile(Path(path), writable=writable, may_write=may_write, machine=machine)
            case _:
                state = StateFile(None)
        driver = NvmlDriver(
            Path(settings["kernel_log"]),
            state=state,
            boot_id=settings.get("boot_id", ""),
            activity=settings.get("activity", True),
        )
    else:
        from trainwarden_exporter.collectors.gpu.amdsmi.driver import AmdsmiDriver  # noqa: PLC0415

        driver = AmdsmiDriver(sysfs)
    known = roster_gpus(settings.get(ROSTER, []))
    if not settings["by_bus"]:
        known = [gpu for gpu in known if gpu.uuid]  # the others were on the bus, and never this process's to open
    return GpuCollector(
        driver,
        Roster(known),
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
        roster: the GPUs that are known from before, to which those that are found are added.
        sysfs: where it is mounted.
        interval, slow_interval, timeout: of the samples of a GPU, seconds.
        expected: how many GPUs there should be; None: as many as were seen at most.
        by_bus: whether a GPU that is on the bus alone counts; not in a container that was given some of a node's.

    Attributes:
        keep: called with a name and a value that the exporter is to give to the next such process.
    """

    def __init__(
        self,
        driver: GpuDriver,
        roster: Roster,
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
        self.keep: Callable[[str, Any], None] = lambda _name, _value: None
        self._roster = roster
        self._kept: list[dict[str, Any]] | None = None
        self._repartitioned = False
        self._present: set[str] = set()
        self._lent: set[str] = set()
        self._lock = threading.Lock()
        # The GPUs of the roster by bus address.
        self._states: dict[str, GpuState] = {}
        self._devices: dict[str, GpuDevice] = {}
        self._sums = GpuSums(driver.vendor, self._states, timeout)
        self._node = GpuNode(self._states, driver, self._spent, interval=interval, timeout=timeout, expected=expected)

    def collect(self) -> Sequence[Family]:
        """Look which GPUs there are. Return no series: those of the node are a task of their own, for they wait."""
        on_bus = gpus_on_bus(self._sysfs, self._driver.pci_vendor)
        counted = set(on_bus) if self._by_bus else set()
        known = bool(counted or self._driver.found)
        self._driver.look(on_bus, self._states.values(), known=known)
        self._driver.wait(min(OPEN_SECONDS, self._timeout / 2) if known else WAIT_SHARE * self._timeout)
        with self._lock:
            self._present = {*counted, *self._driver.found}
            # What another driver was given on purpose is not lost.
            self._lent = set(gpus_on_bus(self._sysfs, self._driver.pci_vendor, lent=True))
            if self._driver.found and not self._repartitioned:
                self._roster.repartition(self._present)
                self._repartitioned = True
            self._roster.see(self._present)
            self._follow_roster()
        if self._driver.generation:  # until then no GPU can be sampled, and the task of the driver hangs or fails
            for bus, state in list(self._states.items()):
                known_device = self._devices.get(bus)
                if known_device is None or known_device.state is not state:
                    self._devices[bus] = GpuDevice(
                        state,
                        self._driver,
                        self._identified,
                        self._spent,
                        self._sums,
                        slow_interval=self._slow_interval,
                        timeout=self._timeout,
                    )
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        """Return two tiers of each GPU, their sums, the driver as a whole, its own tasks, and the node."""
        tasks, later = [], SUMMED_SHARE * self._interval
        for bus, gpu in self._devices.items():
            if self._states.get(bus) is not gpu.state:
                continue  # another driver was given it
            tasks.append(SampleTask(self.name, gpu.fast, self._interval, self._timeout, bus, "fast"))
            tasks.append(SampleTask(self.name, gpu.slow, self._interval, self._timeout, bus, "slow"))
        if tasks:
            tasks.append(SampleTask(self.name, self._sums.read, later, self._timeout, tier="sums"))
        return [
            *tasks,
            SampleTask(self.name, self._open, self._interval, self._timeout, tier="driver"),
            *(
                SampleTask(self.name, task.read, task.interval, self._timeout, tier=task.tier)
                for task in self._driver.node_tasks()
            ),
            SampleTask(self.name, self._node.read, later, self._timeout, tier="node"),
        ]

    def close(self) -> None:
        """Release every handle; waits while opening the library hangs."""
        self._driver.follow()
        self._driver.close()

    def _identified(self, state: GpuState, opened: OpenGpu) -> None:
        """Take note of which GPU was opened: it may be another than the one that was at its address before."""
        with self._lock:
            self._roster.identify(RosterGpu(0, state.bus, opened.uuid, opened.minor, opened.info), self._present)
            self._follow_roster()

    def _follow_roster(self) -> None:
        """Have a state for each GPU of the roster, with its labels, and the exporter keep the roster if it changed."""
        gpus = {gpu.bus: gpu for gpu in self._roster.gpus if gpu.bus not in self._lent}
        for bus in self._states.keys() - gpus.keys():
            del self._states[bus]
        for bus, gpu in gpus.items():
            labels = {"gpu": str(gpu.index), "uuid": gpu.uuid}
            state = self._states.setdefault(bus, GpuState(bus, labels))
            state.labels, state.info = labels, gpu.info
        roster = self._roster.to_json()
        if roster != self._kept:
            self._kept = roster
            self.keep(ROSTER, roster)

    def _open(self) -> Sequence[Family]:
        """Fail where no GPU can be read; hang where opening the library hangs, so that the page names the call."""
        self._driver.follow()
        failure = self._driver.failure
        if failure is not None:
            raise failure.again()
        return ()
