"""One EFA device, and the sums over all of a node."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from trainwarden.redaction import label_text
from trainwarden_exporter.collectors.rdma import efa_metrics
from trainwarden_exporter.collectors.rdma.device import LinkMetrics, add_link, device_info, ports, read_link
from trainwarden_exporter.collectors.rdma.files import DeviceFiles
from trainwarden_exporter.core.device_sums import DeviceSums
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trainwarden_exporter.collectors.rdma.device import Link
    from trainwarden_exporter.collectors.rdma.devices import RdmaDevice
    from trainwarden_exporter.core.metric import Family, Metric

# By the name of the counter's file.
_SUMMED = {
    "tx_bytes": efa_metrics.EFA_NODE_TX_BYTES_TOTAL,
    "rx_bytes": efa_metrics.EFA_NODE_RX_BYTES_TOTAL,
    "tx_pkts": efa_metrics.EFA_NODE_TX_PACKETS_TOTAL,
    "rx_drops": efa_metrics.EFA_NODE_RX_DROPS_TOTAL,
    "retrans_bytes": efa_metrics.EFA_NODE_RETRANSMITTED_BYTES_TOTAL,
    "retrans_pkts": efa_metrics.EFA_NODE_RETRANSMITTED_PACKETS_TOTAL,
    "retrans_timeout_events": efa_metrics.EFA_NODE_RETRANSMISSION_TIMEOUTS_TOTAL,
    "unresponsive_remote_events": efa_metrics.EFA_NODE_UNRESPONSIVE_REMOTES_TOTAL,
    "impaired_remote_conn_events": efa_metrics.EFA_NODE_IMPAIRED_REMOTE_CONNECTIONS_TOTAL,
    "rdma_read_wr_err": efa_metrics.EFA_NODE_WORK_REQUEST_ERRORS_TOTAL,
    "rdma_write_wr_err": efa_metrics.EFA_NODE_WORK_REQUEST_ERRORS_TOTAL,
    "no_completion_cmds": efa_metrics.EFA_NODE_NO_COMPLETION_COMMANDS_TOTAL,
}
_KEEP_ALIVES = "keep_alive_rcvd"
_LINK = LinkMetrics(
    efa_metrics.EFA_PORT_UP,
    efa_metrics.EFA_PORT_STATE,
    efa_metrics.EFA_PORT_PHYSICAL_STATE,
    efa_metrics.EFA_PORT_RATE_BYTES_PER_SECOND,
)
_OWN = "hw_counters"
_VERSION = "module/efa/version"


class NodeTotals:
    """Sums over all EFA devices of the node, the ports that are down, and the device that was silent longest.

    Args:
        keep: for how long the state of a device's links counts as current, seconds.
        monotonic: the clock of that.
        now: the clock of what is exported, Unix seconds.
    """

    def __init__(
        self, keep: float, monotonic: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._keep = keep
        self._monotonic = monotonic
        self._now = now
        self._sums = DeviceSums()
        self._down: dict[str, tuple[int, float]] = {}
        # Of each device: its count of keep-alives, and when that last moved; None before it moved.
        self._alive: dict[str, tuple[int, float | None]] = {}
        self._lock = threading.Lock()

    def count(self, device: str, file: str, counter: str, value: int) -> None:
        """Add what one counter of a device has grown by."""
        if counter in _SUMMED:
            self._sums.count((device, file), value, _SUMMED[counter])
        elif counter == _KEEP_ALIVES:
            with self._lock:
                before = self._alive.get(device)
                if before is None or before[0] != value:
                    self._alive[device] = (value, None if before is None else self._now())

    def down(self, device: str, ports: int) -> None:
        """Record how many ports of a device are down."""
        with self._lock:
            self._down[device] = (ports, self._monotonic())

    def forget(self, device: str) -> None:
        """Drop the links and the keep-alives of a device that is gone."""
        with self._lock:
            self._down.pop(device, None)
            self._alive.pop(device, None)

    def add_to(self, families: Families) -> None:
        """Add the sums; leave out what no device has reported."""
        now = self._monotonic()
        with self._lock:
            fresh = [ports for ports, since in self._down.values() if now - since <= self._keep]
            heard = [heard for _, heard in self._alive.values() if heard is not None]
        families.add(efa_metrics.EFA_NODE_PORTS_DOWN, sum(fresh) if fresh else None)
        families.add(efa_metrics.EFA_NODE_KEEP_ALIVE_TIMESTAMP_SECONDS, min(heard, default=None))
        self._sums.add_to(families)


class Counter(NamedTuple):
    """One file, the metric under which it is exported, and the labels of that metric."""

    file: str
    name: str
    metric: Metric
    labels: dict[str, str]


class EfaDevice:
    """An EFA device that is sampled again and again.

    Args:
        device: as it was found.
        sysfs: where the version of the driver is read.
        below: the first descriptor that is not kept open between two samples.
        totals: sums of the node, to which the device's counters are added.
    """

    def __init__(self, device: RdmaDevice, sysfs: str, below: int, totals: NodeTotals) -> None:
        self.device = device
        self.files = DeviceFiles(device.path, below)
        self._driver = DeviceFiles(sysfs, below=0)
        self._totals = totals
        self._counters: list[Counter] = []
        self._ports: list[str] = []
        self._info: dict[str, str] = {}
        self._families: Sequence[Family] = ()

    def read(self) -> Sequence[Family]:
        """Return the families as they are now, the same object if they are as before; `OSError` if it is gone."""
        with self.files as files:
            if not files.listed:
                self._ports = ports(files)
                self._counters = list(self._list_counters())
                if not self._counters:
                    files.list_again()  # the kernel shows a port before its counters
                self._info = {**device_info(files, self.device.pci_bus_id), "driver": self._version()}
            links = [read_link(files, port) for port in self._ports]
            values = [files.counter(counter.file) for counter in self._counters]
            # Most devices of a node are idle most of the time.
            if files.changed:
                self._count(values)
                self._families = self._families_of(links, values)
            self._totals.down(self.device.name, sum(link.up is False for link in links))
        return self._families

    def close(self) -> None:
        """Close every file."""
        self.files.close()

    def _count(self, values: Iterable[int | None]) -> None:
        for counter, value in zip(self._counters, values, strict=True):
            if value is not None:
                self._totals.count(self.device.name, counter.file, counter.name, value)

    def _families_of(self, links: Iterable[Link], values: Iterable[int | None]) -> Sequence[Family]:
        families, name = Families(), self.device.name
        families.add(efa_metrics.EFA_DEVICE_INFO, 1, device=name, **self._info)
        for port, link in zip(self._ports, links, strict=True):
            add_link(families, _LINK, link, name, port)
        for counter, value in zip(self._counters, values, strict=True):
            families.add(counter.metric, value, **counter.labels)
        families.add(efa_metrics.EFA_READ_ERRORS_TOTAL, self.files.errors, device=name)
        return families.collected()

    def _list_counters(self) -> Iterator[Counter]:
        """Yield the files to read, each counter once, in its own folder if it is there.

        Drivers before 1.14 keep the counters of the device among those of its port.
        """
        own = [name for name in self.files.names(_OWN) if name not in efa_metrics.NO_COUNTERS]
        folders = {port: self.files.names(f"ports/{port}/{_OWN}") for port in self._ports}
        present = {name for name in own if name not in efa_metrics.PORT_COUNTERS}
        first = self._ports[0] if self._ports else ""
        for name in own:
            if name not in efa_metrics.PORT_COUNTERS:
                yield self._of_device(f"{_OWN}/{name}", name)
            elif name not in folders.get(first, ()):
                yield self._of_port(f"{_OWN}/{name}", name, first)
        for port, names in folders.items():
            for name in names:
                file = f"ports/{port}/{_OWN}/{name}"
                if name in efa_metrics.DEVICE_COUNTERS:
                    if name not in present:
                        present.add(name)
                        yield self._of_device(file, name)
                elif name not in efa_metrics.NO_COUNTERS:
                    yield self._of_port(file, name, port)

    def _of_device(self, file: str, name: str) -> Counter:
        labels = {"device": self.device.name}
        if name in efa_metrics.DEVICE_COUNTERS:
            return Counter(file, name, efa_metrics.DEVICE_COUNTERS[name], labels)
        return Counter(file, name, efa_metrics.EFA_HW_VALUE, {**labels, "port": "", "name": name})

    def _of_port(self, file: str, name: str, port: str) -> Counter:
        labels = {"device": self.device.name, "port": port}
        if name in efa_metrics.PORT_COUNTERS:
            return Counter(file, name, efa_metrics.PORT_COUNTERS[name], labels)
        return Counter(file, name, efa_metrics.EFA_HW_VALUE, {**labels, "name": name})

    def _version(self) -> str:
        with self._driver as files:
            return label_text(files.text(_VERSION, str) or "", 64)
