"""The collector of EFA devices: which there are, and each one's counters and links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma.efa import metrics
from trainwarden_exporter.collectors.rdma.efa.device import EfaDevice
from trainwarden_exporter.collectors.rdma.efa.node_totals import NodeTotals
from trainwarden_exporter.collectors.rdma.infiniband.devices import RdmaDevices, efa_functions
from trainwarden_exporter.collectors.rdma.infiniband.kept_file import kept_below
from trainwarden_exporter.collectors.rdma.infiniband.roll import Roll
from trainwarden_exporter.core.instance import inventory
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trainwarden_exporter.core.metric import Family


@dataclass(frozen=True)
class EfaSettings:
    """What the flags say: `expected` devices, None where nothing is said; cadence and deadline in seconds."""

    expected: int | None
    interval: float
    timeout: float


class EfaCollector:
    """Exports the EFA devices below `sysfs`, each as a part of its own."""

    name = "efa"

    def __init__(self, sysfs: Path, settings: EfaSettings) -> None:
        self._sysfs = sysfs
        self._look = RdmaDevices(sysfs)
        self._settings = settings
        self._totals = NodeTotals(2 * settings.interval + settings.timeout)
        self._roll = Roll()
        self._devices: dict[str, EfaDevice] = {}
        self._below = kept_below()

    def collect(self) -> Iterable[Family]:
        """Look which devices there are; returns what is of none of them. Raises `OSError`."""
        with calling("list /sys/class/infiniband"):
            found = {device.name: device for device in self._look.look() if device.is_efa}
        for name in self._roll.call(found.values()):
            self._totals.forget(name)
        for name in self._devices.keys() - found.keys():
            self._devices.pop(name).close()
        for name, device in found.items():
            known = self._devices.get(name)
            if known is None or known.device != device:
                self._devices[name] = EfaDevice(device, str(self._sysfs), self._below, self._totals)
        families = Families()
        families.add(metrics.EFA_DEVICES, len(found))
        families.add(metrics.EFA_DEVICES_EXPECTED, self._expected())
        for name, here in self._roll.up.items():
            families.add(metrics.EFA_DEVICE_UP, here, device=name)
        self._totals.add_to(families)
        return families.collected()

    def parts(self) -> Sequence[SampleTask]:
        """Return the devices that the last `collect` found."""
        interval, timeout = self._settings.interval, self._settings.timeout
        return [
            SampleTask(self.name, partial(self._read, name), interval, timeout, name) for name in list(self._devices)
        ]

    def close(self) -> None:
        """Let go of every file of every device."""
        for device in list(self._devices.values()):
            device.close()

    def _read(self, name: str) -> Iterable[Family]:
        """Read the device that has this name now: a part keeps its first reader, and a device may be another one."""
        device = self._devices.get(name)
        if device is None:
            raise FileNotFoundError(f"{name} is gone")
        return device.read()

    def _expected(self) -> int | None:
        if self._settings.expected is not None:
            return self._settings.expected
        with calling("read /sys/bus/pci/devices"):
            known = inventory(self._sysfs)
            return known.efa_devices if known else efa_functions(self._sysfs)
