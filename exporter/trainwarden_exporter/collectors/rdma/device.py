"""What EFA and InfiniBand devices have in common: identity, ports and their links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trainwarden.redaction import label_text

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.rdma.files import DeviceFiles
    from trainwarden_exporter.core.metric import Families, Metric

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
        """Whether the port is active; None where unknown."""
        return None if self.state is None else self.state == ACTIVE


def device_info(files: DeviceFiles, pci_bus_id: str) -> dict[str, str]:
    """Return the labels PCI address, firmware and NUMA node, empty where unknown."""
    node = files.text("device/numa_node", str) or ""
    return {
        "pci_bus_id": label_text(pci_bus_id, 32),
        "firmware": label_text(files.text("fw_ver", str) or "", 64),
        "numa_node": node if node.isdecimal() and len(node) < 5 else "",  # -1: unknown to the firmware
    }


def ports(files: DeviceFiles) -> list[str]:
    """Return the numbers of the device's ports, in order."""
    found = sorted(filter(str.isdigit, files.names("ports")), key=int)
    if not found:
        files.list_again()  # the kernel shows a device before its ports
    return found


def read_link(files: DeviceFiles, port: str) -> Link:
    """Read the link of a port."""
    state, physical = (files.text(f"ports/{port}/{name}", _number) for name in ("state", "phys_state"))
    return Link(state, physical, files.text(f"ports/{port}/rate", _bytes_per_second))


class LinkMetrics(NamedTuple):
    """The metrics under which a kind of device exports its links."""

    up: Metric
    state: Metric
    physical_state: Metric
    rate: Metric


def add_link(families: Families, metrics: LinkMetrics, link: Link, device: str, port: str) -> None:
    """Add the series of a link."""
    families.add(metrics.up, link.up, device=device, port=port)
    families.add(metrics.state, link.state, device=device, port=port)
    families.add(metrics.physical_state, link.physical_state, device=device, port=port)
    families.add(metrics.rate, link.rate, device=device, port=port)


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
