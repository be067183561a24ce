"""Which RDMA devices the node has, and whose they are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.collectors.rdma.infiniband.kept_file import KeptFile

AMAZON = "0x1d0f"
MAX_DEVICES = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_EFA = re.compile(r"0xefa[0-9a-f]")


@dataclass(frozen=True)
class RdmaDevice:
    """A device of /sys/class/infiniband: its name, its folder, the PCI address and vendor behind it, empty if none."""

    name: str
    path: str
    pci_bus_id: str
    vendor: str

    @property
    def is_efa(self) -> bool:
        """Whether it is one of Amazon's."""
        return self.vendor == AMAZON


class RdmaDevices:
    """Looks again and again which devices there are below `sysfs`; what one is, is asked once while it stays."""

    def __init__(self, sysfs: Path) -> None:
        self._folder = str(sysfs / "class/infiniband")
        self._known: dict[str, tuple[tuple[int, int], RdmaDevice]] = {}

    def look(self) -> list[RdmaDevice]:
        """Return the devices in order of their names; none where the class is not there. Raises `OSError`."""
        try:
            names = sorted(filter(_NAME.fullmatch, os.listdir(self._folder)))  # noqa: PTH208  # names are all it takes
        except FileNotFoundError:
            names = []
        found, known = [], self._known
        self._known = {}
        for name in names[:MAX_DEVICES]:
            path = f"{self._folder}/{name}"
            before, identity = known.get(name), _identity(path)
            device = before[1] if before and before[0] == identity else _device(Path(path))
            found.append(device)
            if identity and device.pci_bus_id and device.vendor:  # else it is software, or could not be looked at
                self._known[name] = identity, device
        return found


def rdma_devices(sysfs: Path) -> list[RdmaDevice]:
    """Return the devices in order of their names, once. Raises `OSError`."""
    return RdmaDevices(sysfs).look()


def efa_functions(sysfs: Path) -> int:
    """Return how many EFA devices the PCI bus shows, whether a driver has taken them or not. Raises `OSError`."""
    try:
        found = list((sysfs / "bus/pci/devices").iterdir())
    except FileNotFoundError:
        return 0
    return sum(_text(path / "vendor") == AMAZON and bool(_EFA.fullmatch(_text(path / "device"))) for path in found)


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells the device from another that has its name later; None if it cannot be looked at."""
    try:
        status = os.stat(path)  # noqa: PTH116  # of 32 devices at each look
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _device(path: Path) -> RdmaDevice:
    behind = path / "device"
    # In the kernel's tree this is a link to the PCI function; a software device has none behind it.
    # One that cannot be looked at costs no other: Path.is_dir() raises for it.
    pci = Path(os.path.realpath(behind)).name if os.path.isdir(behind) else ""  # noqa: PTH112  # as above
    return RdmaDevice(path.name, str(path), pci, _text(behind / "vendor"))


def _text(path: Path) -> str:
    try:
        return KeptFile(str(path), 0).read().decode("ascii", "replace").strip().lower()
    except OSError:
        return ""
