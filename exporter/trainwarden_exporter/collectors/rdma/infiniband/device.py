"""One RDMA device: what its files say, as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma.infiniband import metrics
from trainwarden_exporter.collectors.rdma.infiniband.device_files import DeviceFiles
from trainwarden_exporter.collectors.rdma.infiniband.info import device_info
from trainwarden_exporter.collectors.rdma.infiniband.port import LinkMetrics, add_link, ports, read_link
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.collectors.rdma.infiniband.devices import RdmaDevice
    from trainwarden_exporter.core.metric import Family

_LINK = LinkMetrics(
    metrics.INFINIBAND_PORT_UP,
    metrics.INFINIBAND_PORT_STATE,
    metrics.INFINIBAND_PORT_PHYSICAL_STATE,
    metrics.INFINIBAND_PORT_RATE_BYTES_PER_SECOND,
)
# By the name of the file, and by how much its number is to be multiplied: data is counted in words of one lane.
_COUNTERS = {
    "port_xmit_data": (metrics.INFINIBAND_TX_BYTES_TOTAL, 4),
    "port_rcv_data": (metrics.INFINIBAND_RX_BYTES_TOTAL, 4),
    "port_xmit_packets": (metrics.INFINIBAND_TX_PACKETS_TOTAL, 1),
    "port_rcv_packets": (metrics.INFINIBAND_RX_PACKETS_TOTAL, 1),
    "symbol_error": (metrics.INFINIBAND_SYMBOL_ERRORS_TOTAL, 1),
    "link_downed": (metrics.INFINIBAND_LINK_DOWNED_TOTAL, 1),
    "link_error_recovery": (metrics.INFINIBAND_LINK_ERROR_RECOVERIES_TOTAL, 1),
    "port_rcv_errors": (metrics.INFINIBAND_RX_ERRORS_TOTAL, 1),
    "port_xmit_discards": (metrics.INFINIBAND_TX_DISCARDS_TOTAL, 1),
    "port_xmit_wait": (metrics.INFINIBAND_TX_WAIT_TICKS_TOTAL, 1),
}


class InfinibandDevice:
    """A device that is sampled again and again; `below` is the first descriptor that is not kept in between."""

    def __init__(self, device: RdmaDevice, below: int) -> None:
        self.device = device
        self.files = DeviceFiles(device.path, below)
        self._info: dict[str, str] = {}

    def read(self) -> Iterable[Family]:
        """Return the families as they are now; raises `OSError` if the device is gone."""
        families, name = Families(), self.device.name
        with self.files as files:
            if not files.listed:
                model = label_text(files.text("hca_type", str) or "", 64)
                self._info = {**device_info(files, self.device.pci_bus_id), "model": model}
            families.add(metrics.INFINIBAND_INFO, 1, device=name, **self._info)
            for port in ports(files):
                add_link(families, _LINK, read_link(files, port), name, port)
                self._add_counters(families, port)
            families.add(metrics.INFINIBAND_READ_ERRORS_TOTAL, files.errors, device=name)
        return families.collected()

    def close(self) -> None:
        """Let go of every file."""
        self.files.close()

    def _add_counters(self, families: Families, port: str) -> None:
        folder = f"ports/{port}/counters"
        there = self.files.names(folder)
        for file, (metric, factor) in _COUNTERS.items():
            value = self.files.counter(f"{folder}/{file}") if file in there else None
            families.add(metric, None if value is None else value * factor, device=self.device.name, port=port)
