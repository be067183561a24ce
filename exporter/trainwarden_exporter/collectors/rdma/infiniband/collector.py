"""The collector of RDMA devices other than EFA."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma.infiniband import metrics
from trainwarden_exporter.collectors.rdma.infiniband.device import InfinibandDevice
from trainwarden_exporter.collectors.rdma.infiniband.devices import RdmaDevices
from trainwarden_exporter.collectors.rdma.infiniband.kept_file import kept_below
from trainwarden_exporter.collectors.rdma.infiniband.roll import Roll
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trainwarden_exporter.core.metric import Family


class InfinibandCollector:
    """Exports the RDMA devices below `sysfs` that are no EFA, each as a part of its own.

    Args:
        sysfs: where it is mounted.
        interval, timeout: cadence and deadline of each device, seconds.
    """

    name = "infiniband"

    def __init__(self, sysfs: Path, interval: float, timeout: float) -> None:
        self._look = RdmaDevices(sysfs)
        self._interval = interval
        self._timeout = timeout
        self._roll = Roll()
        self._devices: dict[str, InfinibandDevice] = {}
        self._below = kept_below()

    def collect(self) -> Iterable[Family]:
        """Look which devices there are; returns what is of none of them. Raises `OSError`."""
        with calling("list /sys/class/infiniband"):
            found = {device.name: device for device in self._look.look() if not device.is_efa}
        self._roll.call(found.values())
        for name in self._devices.keys() - found.keys():
            self._devices.pop(name).close()
        for name, device in found.items():
            known = self._devices.get(name)
            if known is None or known.device != device:
                self._devices[name] = InfinibandDevice(device, self._below)
        families = Families()
        families.add(metrics.INFINIBAND_DEVICES, len(found))
        for name, here in self._roll.up.items():
            families.add(metrics.INFINIBAND_DEVICE_UP, here, device=name)
        return families.collected()

    def parts(self) -> Sequence[SampleTask]:
        """Return the devices that the last `collect` found."""
        return [
            SampleTask(self.name, partial(self._read, name), self._interval, self._timeout, name)
            for name in list(self._devices)
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
