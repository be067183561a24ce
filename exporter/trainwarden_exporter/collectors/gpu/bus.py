"""Which GPUs are on the PCI bus, by sysfs: no driver is called, and a GPU whose driver fails is listed too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    try:
        devices = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return []
    return [device.name for device in devices if _is_gpu(device, vendor) and _is_lent(device) == lent]


def bus_address(text: str) -> str | None:
    """Return an address as sysfs writes it, from a driver's form (00000000:3B:00.0); None if it is no address."""
    domain, _, rest = text.strip().lower().partition(":")
    bus, _, slot = rest.partition(":")
    device, _, function = slot.partition(".")
    try:
        return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"
    except ValueError:
        return None


def _is_gpu(device: Path, vendor: int) -> bool:
    return _hexadecimal(device / "vendor") == vendor and (_hexadecimal(device / "class") or 0) >> 16 in _CLASSES


def _is_lent(device: Path) -> bool:
    try:
        return (device / "driver").readlink().name in _FOREIGN_DRIVERS
    except OSError:
        return False  # bound to no driver, which is a fault to show


def _hexadecimal(path: Path) -> int | None:
    try:
        return int(path.read_text(), 16)
    except (OSError, ValueError):
        return None
