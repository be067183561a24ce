"""The devices that a cloud instance of a known type should have: a node cannot see one that did not come up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Inventory:
    """How many devices an instance type has."""

    gpus: int
    efa_devices: int


# As AWS lists them.
INSTANCE_TYPES = {
    "p4d.24xlarge": Inventory(8, 4),
    "p4de.24xlarge": Inventory(8, 4),
    "p5.48xlarge": Inventory(8, 32),
    "p5e.48xlarge": Inventory(8, 32),
    "p5en.48xlarge": Inventory(8, 16),
    "p6-b200.48xlarge": Inventory(8, 8),
}


def instance_type(sysfs: Path) -> str | None:
    """Return the firmware's product name, which on EC2 is the instance type; None if there is none."""
    try:
        return (sysfs / "class/dmi/id/product_name").read_text(errors="replace").strip() or None
    except OSError:
        return None


def inventory(sysfs: Path) -> Inventory | None:
    """Return the devices that the instance should have; None for a type that is not in the list."""
    return INSTANCE_TYPES.get(instance_type(sysfs) or "")
