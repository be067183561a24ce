"""What the collectors of EFA and of InfiniBand devices have in common: devices come and go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Protocol

from trainwarden_exporter.collectors.rdma.devices import KnownDevices, RdmaDevices
from trainwarden_exporter.collectors.rdma.files import kept_below
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trainwarden_exporter.collectors.rdma.devices import RdmaDevice
    from trainwarden_exporter.core.metric import Family, Metric


class SampledDevice(Protocol):
    """A device that is sampled again and again."""

    device: RdmaDevice

    def read(self) -> Sequence[Family]:
        """Return the families as they are now; raise `OSError` if the device is gone."""

    def close(self) -> None:
        """Close every file."""


class RdmaCollector(ABC):
    """Samples each device of one kind by itself.

    Args:
        sysfs: where it is mounted.
        interval: pause between two samples of a device, seconds.
        timeout: deadline of a sample, seconds.
    """

    name: str
    count: Metric  # of devices present
    up: Metric  # of each device seen

    def __init__(self, sysfs: Path, interval: float, timeout: float) -> None:
        self._sysfs = sysfs
        self._interval = interval
        self._timeout = timeout
        self._below = kept_below()
        self._listing = RdmaDevices(sysfs)
        self._known = KnownDevices()
        self._devices: dict[str, SampledDevice] = {}

    def collect(self) -> Iterable[Family]:
        """List the devices; return the families that belong to the node. Raises `OSError`."""
        with calling("list /sys/class/infiniband"):
            found = {device.name: device for device in self._listing.list() if self._is_sampled(device)}
        for name in self._known.update(found.values()):
            self._vanished(name)
        for name in self._devices.keys() - found.keys():
            self._devices.pop(name).close()
        for name, device in found.items():
            before = self._devices.get(name)
            if before is None or before.device != device:
                self._devices[name] = self._opened(device)
        families = Families()
        families.add(self.count, len(found))
        for name, present in self._known.up.items():
            families.add(self.up, present, device=name)
        self._add_node(families)
        return families.collected()

    def tasks(self) -> Sequence[SampleTask]:
        """Return a task for each device that the last `collect` found."""
        return [
            SampleTask(self.name, partial(self._read, name), self._interval, self._timeout, name)
            for name in list(self._devices)
        ]

    def close(self) -> None:
        """Close every file of every device."""
        for device in list(self._devices.values()):
            device.close()

    @abstractmethod
    def _is_sampled(self, device: RdmaDevice) -> bool:
        """Return whether the device is of this collector's kind."""

    @abstractmethod
    def _opened(self, device: RdmaDevice) -> SampledDevice:
        """Return the device, ready to be sampled."""

    def _vanished(self, name: str) -> None:  # noqa: B027  # a hook: most kinds keep nothing
        """Drop what is kept of a device that is gone."""

    def _add_node(self, families: Families) -> None:  # noqa: B027  # a hook: most kinds add nothing
        """Add further series of the node."""

    def _read(self, name: str) -> Iterable[Family]:
        """Read the device that has this name now: a task keeps its first reader, and the device may be another one."""
        device = self._devices.get(name)
        if device is None:
            raise FileNotFoundError(f"{name} is gone")
        return device.read()
