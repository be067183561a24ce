"""Which GPUs are on the PCI bus, by sysfs: no driver is called, and a GPU whose driver fails is listed too."""

from __future__ import annotations

import os
from pathlib import Path

NVIDIA = 0x10DE
AMD = 0x1002
# Display controllers, and processing accelerators: an MI300X is one of these.
_CLASSES = frozenset({0x03, 0x12})
# The vendor's driver cannot open a GPU that is given to a virtual machine, or bound to another driver.
_FOREIGN_DRIVERS = frozenset({"vfio-pci", "nouveau", "pci-stub", "xen-pciback"})


def gpus_on_bus(sysfs: Path, vendor: int, *, lent: bool = False) -> list[str]:
    """Return the addresses (0000:3b:00.0) of a vendor's GPUs in the order of the bus; none if it cannot be read.

    Args:
        sysfs: where it is mounted.
        vendor: its number on the PCI bus.
        lent: return those that another driver has, and no others; by default those that none has but the vendor's.
    """
    # Plain names and calls: every few seconds a hundred devices are looked at, of which eight are GPUs.
    try:
        with os.scandir(sysfs / "bus/pci/devices") as devices:
            found = [device for device in devices if _is_gpu(device.path, vendor)]
    except OSError:
        return []
    return sorted(device.name for device in found if _is_lent(Path(device.path)) == lent)


def bus_address(text: str) -> str | None:
    """Return an address as sysfs writes it, from a driver's form (00000000:3B:00.0); None if it is no address."""
    domain, _, rest = text.strip().lower().partition(":")
    bus, _, slot = rest.partition(":")
    device, _, function = slot.partition(".")
    try:
        return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"
    except ValueError:
        return None


def _is_gpu(device: str, vendor: int) -> bool:
    return _hexadecimal(f"{device}/vendor") == vendor and (_hexadecimal(f"{device}/class") or 0) >> 16 in _CLASSES


def _is_lent(device: Path) -> bool:
    try:
        return (device / "driver").readlink().name in _FOREIGN_DRIVERS
    except OSError:
        return False  # bound to no driver, which is a fault to show


def _hexadecimal(path: str) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(file, 32), 16)
        finally:
            os.close(file)
    except (OSError, ValueError):
        return None
