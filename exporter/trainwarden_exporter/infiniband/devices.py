"""Which RDMA devices the node has, and whose they are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.infiniband.kept_file import KeptFile

AMAZON = "0x1d0f"
MAX_DEVICES = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_EFA = re.compile(r"0xefa[0-9a-f]")


@dataclass(frozen=True)
class RdmaDevice:
    """A device of /sys/class/infiniband: its name, its folder, the PCI address behind it, empty where it has none."""

    name: str
    path: str
    pci_bus_id: str
    is_efa: bool


def rdma_devices(sysfs: Path) -> list[RdmaDevice]:
    """Return the devices in order of their names; none where the class is not there. Raises `OSError`."""
    folder = sysfs / "class/infiniband"
    try:
        found = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []
    return [_device(path) for path in found[:MAX_DEVICES]]


def efa_functions(sysfs: Path) -> int:
    """Return how many EFA devices the PCI bus shows, whether a driver has taken them or not. Raises `OSError`."""
    try:
        found = list((sysfs / "bus/pci/devices").iterdir())
    except FileNotFoundError:
        return 0
    return sum(_text(path / "vendor") == AMAZON and bool(_EFA.fullmatch(_text(path / "device"))) for path in found)


def _device(path: Path) -> RdmaDevice:
    behind = path / "device"
    # In the kernel's tree this is a link to the PCI function; a software device has none behind it.
    # One that cannot be looked at costs no other: Path.is_dir() raises for it.
    pci = Path(os.path.realpath(behind)).name if os.path.isdir(behind) else ""  # noqa: PTH112  # as above
    return RdmaDevice(path.name, str(path), pci, _text(behind / "vendor") == AMAZON)


def _text(path: Path) -> str:
    try:
        return KeptFile(str(path), 0).read().decode("ascii", "replace").strip().lower()
    except OSError:
        return ""
