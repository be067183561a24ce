"""The collector of RDMA devices other than EFA: InfiniBand and RoCE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.redaction import label_text
from trainwarden_exporter.collectors.rdma import infiniband_metrics
from trainwarden_exporter.collectors.rdma.collector import RdmaCollector
from trainwarden_exporter.collectors.rdma.device import LinkMetrics, add_link, device_info, ports, read_link
from trainwarden_exporter.collectors.rdma.devices import rdma_devices
from trainwarden_exporter.collectors.rdma.files import DeviceFiles, allow_many_files
from trainwarden_exporter.core.device_sums import DeviceSums
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.device_group import DeviceGroup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainwarden_exporter.collectors.rdma.devices import RdmaDevice
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.spec import Context

_LINK = LinkMetrics(
    infiniband_metrics.INFINIBAND_PORT_UP,
    infiniband_metrics.INFINIBAND_PORT_STATE,
    infiniband_metrics.INFINIBAND_PORT_PHYSICAL_STATE,
    infiniband_metrics.INFINIBAND_PORT_RATE_BYTES_PER_SECOND,
)
# By file name, with the factor of its number: data is counted in words of one lane.
_COUNTERS = {
    "port_xmit_data": (infiniband_metrics.INFINIBAND_TX_BYTES_TOTAL, 4),
    "port_rcv_data": (infiniband_metrics.INFINIBAND_RX_BYTES_TOTAL, 4),
    "port_xmit_packets": (infiniband_metrics.INFINIBAND_TX_PACKETS_TOTAL, 1),
    "port_rcv_packets": (infiniband_metrics.INFINIBAND_RX_PACKETS_TOTAL, 1),
    "symbol_error": (infiniband_metrics.INFINIBAND_SYMBOL_ERRORS_TOTAL, 1),
    "link_downed": (infiniband_metrics.INFINIBAND_LINK_DOWNED_TOTAL, 1),
    "link_error_recovery": (infiniband_metrics.INFINIBAND_LINK_ERROR_RECOVERIES_TOTAL, 1),
    "port_rcv_errors": (infiniband_metrics.INFINIBAND_RX_ERRORS_TOTAL, 1),
    "port_xmit_discards": (infiniband_metrics.INFINIBAND_TX_DISCARDS_TOTAL, 1),
    "port_xmit_wait": (infiniband_metrics.INFINIBAND_TX_WAIT_TICKS_TOTAL, 1),
}
# Counters that are summed up over the node's ports as errors, by file name.
_ERRORS = {
    "symbol_error": "symbol",
    "link_error_recovery": "link_recovery",
    "link_downed": "link_downed",
    "port_rcv_errors": "receive",
    "port_xmit_discards": "transmit_discard",
    "local_ack_timeout_err": "ack_timeout",
    "out_of_sequence": "sequence",
    "packet_seq_err": "sequence",
    "roce_adp_retrans": "retransmission",
    "rnr_nak_retry_err": "receiver_not_ready",
    "out_of_buffer": "receiver_not_ready",
    "rx_icrc_encapsulated": "icrc",
    "req_cqe_error": "completion",
    "resp_cqe_error": "completion",
}
_HARDWARE_COUNTERS = {file: (metric, 1) for file, metric in infiniband_metrics.HARDWARE_COUNTERS.items()}


class InfinibandDevice:
    """A device that is sampled again and again.

    Args:
        device: as it was found.
        below: the first descriptor that is not kept open between two samples.
        sums: over the node, to which the device's counters are added.
    """

    def __init__(self, device: RdmaDevice, below: int, sums: DeviceSums) -> None:
        self.device = device
        self._sums = sums
        self.files = DeviceFiles(device.path, below)
        self._info: dict[str, str] = {}

    def read(self) -> Sequence[Family]:
        """Return the families as they are now; raises `OSError` if the device is gone."""
        families, name = Families(), self.device.name
        with self.files as files:
            if not files.listed:
                model = label_text(files.text("hca_type", str) or "", 64)
                self._info = {**device_info(files, self.device.pci_bus_id), "model": model}
            families.add(infiniband_metrics.INFINIBAND_INFO, 1, device=name, **self._info)
            for port in ports(files):
                add_link(families, _LINK, read_link(files, port), name, port)
                self._add_counters(families, port)
            families.add(infiniband_metrics.INFINIBAND_READ_ERRORS_TOTAL, files.errors, device=name)
        return families.collected()

    def close(self) -> None:
        """Close every file."""
        self.files.close()

    def _add_counters(self, families: Families, port: str) -> None:
        for folder, counters in (("counters", _COUNTERS), ("hw_counters", _HARDWARE_COUNTERS)):
            path = f"ports/{port}/{folder}"
            names = self.files.names(path)
            for file, (metric, factor) in counters.items():
                value = self.files.counter(f"{path}/{file}") if file in names else None
                families.add(metric, None if value is None else value * factor, device=self.device.name, port=port)
                if value is not None:
                    self._count(file, port, value)

    def _count(self, file: str, port: str, value: int) -> None:
        counter = (self.device.name, port, file)
        if file in _ERRORS:
            self._sums.count(counter, value, infiniband_metrics.INFINIBAND_NODE_ERRORS_TOTAL, (_ERRORS[file],))
        elif file == "port_xmit_packets":
            self._sums.count(counter, value, infiniband_metrics.INFINIBAND_NODE_TX_PACKETS_TOTAL)


class InfinibandCollector(RdmaCollector):
    """Exports the RDMA devices that are no EFA."""

    name = "infiniband"
    count = infiniband_metrics.INFINIBAND_DEVICES
    up = infiniband_metrics.INFINIBAND_DEVICE_UP

    def __init__(self, sysfs: Path, interval: float, timeout: float) -> None:
        super().__init__(sysfs, interval, timeout)
        self._sums = DeviceSums()

    def _is_sampled(self, device: RdmaDevice) -> bool:
        return not device.is_efa

    def _opened(self, device: RdmaDevice) -> InfinibandDevice:
        return InfinibandDevice(device, self._below, self._sums)

    def _add_node(self, families: Families) -> None:
        self._sums.add_to(families)


def enabled(context: Context) -> bool:
    """Return whether there is such a device here."""
    try:
        return any(not device.is_efa for device in rdma_devices(context.node.sysfs))
    except OSError:
        return False


def create(context: Context) -> DeviceGroup:
    """Return the runner of the collector."""
    allow_many_files()
    collector = InfinibandCollector(context.node.sysfs, context.interval, context.timeout)
    return DeviceGroup(collector, context.interval, context.timeout, scrape_times=ScrapeTimes())


SPEC = CollectorSpec(
    name="infiniband",
    help="RDMA devices other than EFA",
    interval="15s",
    timeout="5s",
    needs="an RDMA device other than EFA",
    create=create,
    enabled=enabled,
    follows_scrapes=True,
)
