"""What an RDMA device is: the labels of its `_info`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.rdma.infiniband.device_files import DeviceFiles


def device_info(files: DeviceFiles, pci_bus_id: str) -> dict[str, str]:
    """Return PCI address, firmware and NUMA node, empty where unknown."""
    node = files.text("device/numa_node", str) or ""
    return {
        "pci_bus_id": label_text(pci_bus_id, 32),
        "firmware": label_text(files.text("fw_ver", str) or "", 64),
        "numa_node": node if node.isdecimal() and len(node) < 5 else "",  # -1: the firmware does not say
    }
