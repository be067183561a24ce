"""The RDMA devices of a node: those present, and those that have vanished."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma.files import KeptFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AMAZON = "0x1d0f"
MAX_DEVICES = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_EFA = re.compile(r"0xefa[0-9a-f]")


@dataclass(frozen=True)
class RdmaDevice:
    """A device of /sys/class/infiniband: name, folder, and PCI address and vendor of its function, empty if none."""

    name: str
    path: str
    pci_bus_id: str
    vendor: str

    @property
    def is_efa(self) -> bool:
        """Whether it is one of Amazon's."""
        return self.vendor == AMAZON


class RdmaDevices:
    """Lists the devices below `sysfs` again and again; reads PCI address and vendor once while a device stays."""

    def __init__(self, sysfs: Path) -> None:
        self._folder = str(sysfs / "class/infiniband")
        self._known: dict[str, tuple[tuple[int, int], RdmaDevice]] = {}

    def list(self) -> list[RdmaDevice]:
        """Return the devices, sorted by name; none where the class is absent. Raises `OSError`."""
        try:
            names = sorted(filter(_NAME.fullmatch, os.listdir(self._folder)))  # noqa: PTH208  # names only
        except FileNotFoundError:
            names = []
        found, known = [], self._known
        self._known = {}
        for name in names[:MAX_DEVICES]:
            path = f"{self._folder}/{name}"
            before, identity = known.get(name), _identity(path)
            device = before[1] if before and before[0] == identity else _device(Path(path))
            found.append(device)
            if identity and device.pci_bus_id and device.vendor:  # else it is software, or could not be read
                self._known[name] = identity, device
        return found


class KnownDevices:
    """The devices that were seen, present or vanished. A slot of the PCI bus counts once, under its last name."""

    def __init__(self) -> None:
        self._slots: dict[str, str] = {}  # by name
        self._present: set[str] = set()

    def update(self, devices: Iterable[RdmaDevice]) -> set[str]:
        """Record which devices are present now; return the names of those that have vanished since."""
        now = {device.name: device.pci_bus_id for device in devices}
        gone = self._present - now.keys()
        self._present = set(now)
        taken = {slot for slot in now.values() if slot}
        # A driver that is loaded again may give its devices other names.
        self._slots = {name: slot for name, slot in self._slots.items() if name in now or slot not in taken} | now
        return gone

    @property
    def up(self) -> Mapping[str, bool]:
        """Whether each known device is present, by name."""
        return {name: name in self._present for name in sorted(self._slots)}


def rdma_devices(sysfs: Path) -> list[RdmaDevice]:
    """Return the devices, sorted by name. Raises `OSError`."""
    return RdmaDevices(sysfs).list()


def efa_functions(sysfs: Path) -> int:
    """Count the EFA devices on the PCI bus, with or without a driver. Raises `OSError`."""
    try:
        found = list((sysfs / "bus/pci/devices").iterdir())
    except FileNotFoundError:
        return 0
    return sum(_text(path / "vendor") == AMAZON and bool(_EFA.fullmatch(_text(path / "device"))) for path in found)


def _identity(path: str) -> tuple[int, int] | None:
    """Return device and inode number, which differ for a later device of the same name; None if unreadable."""
    try:
        status = os.stat(path)  # noqa: PTH116  # called for 32 devices in each sample
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _device(path: Path) -> RdmaDevice:
    behind = path / "device"
    # In the kernel's tree this is a link to the PCI function; a software device has none behind it.
    # One that cannot be read must cost no other: Path.is_dir() raises for it.
    pci = Path(os.path.realpath(behind)).name if os.path.isdir(behind) else ""  # noqa: PTH112  # as above
    return RdmaDevice(path.name, str(path), pci, _text(behind / "vendor"))


def _text(path: Path) -> str:
    try:
        return KeptFile(str(path), 0).read().decode("ascii", "replace").strip().lower()
    except OSError:
        return ""
