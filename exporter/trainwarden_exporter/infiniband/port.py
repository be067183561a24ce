"""The link of one port of an RDMA device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwarden_exporter.catalog import Families
    from trainwarden_exporter.infiniband.device_files import DeviceFiles

ACTIVE = 4
_STATE = re.compile(r"(\d{1,3})(?:: .*)?")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec\b.*")


@dataclass(frozen=True)
class Link:
    """State and physical state by the numbers of the InfiniBand specification, rate in bytes/s; None where unknown."""

    state: int | None
    physical_state: int | None
    rate: float | None

    @property
    def up(self) -> bool | None:
        """Whether the port takes part in the network; None where unknown."""
        return None if self.state is None else self.state == ACTIVE


def ports(files: DeviceFiles) -> list[str]:
    """Return the numbers of the device's ports, in order."""
    return sorted(filter(str.isdigit, files.names("ports")), key=int)


def read_link(files: DeviceFiles, port: str) -> Link:
    """Read the link of a port."""
    state, physical = (files.text(f"ports/{port}/{name}", _number) for name in ("state", "phys_state"))
    return Link(state, physical, files.text(f"ports/{port}/rate", _bytes_per_second))


def add_link(families: Families, prefix: str, link: Link, device: str, port: str) -> None:
    """Add the series of a link, whose names begin with `prefix`."""
    values = {
        "up": link.up,
        "state": link.state,
        "physical_state": link.physical_state,
        "rate_bytes_per_second": link.rate,
    }
    for name, value in values.items():
        families.add(f"{prefix}_port_{name}", value, device=device, port=port)


def _number(text: str) -> int:
    match = _STATE.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is no state, expected one such as '4: ACTIVE'")
    return int(match[1])


def _bytes_per_second(text: str) -> float:
    match = _RATE.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is no rate, expected one such as '100 Gb/sec (4X EDR)'")
    return float(match[1]) * 1e9 / 8
