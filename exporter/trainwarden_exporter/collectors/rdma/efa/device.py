"""One EFA device: what its files say, as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.rdma.efa import metrics
from trainwarden_exporter.collectors.rdma.efa.counters import NO_COUNTERS
from trainwarden_exporter.collectors.rdma.infiniband.device_files import DeviceFiles
from trainwarden_exporter.collectors.rdma.infiniband.info import device_info
from trainwarden_exporter.collectors.rdma.infiniband.port import LinkMetrics, add_link, ports, read_link
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainwarden_exporter.collectors.rdma.efa.node_totals import NodeTotals
    from trainwarden_exporter.collectors.rdma.infiniband.devices import RdmaDevice
    from trainwarden_exporter.collectors.rdma.infiniband.port import Link
    from trainwarden_exporter.core.metric import Family, Metric

_LINK = LinkMetrics(
    metrics.EFA_PORT_UP,
    metrics.EFA_PORT_STATE,
    metrics.EFA_PORT_PHYSICAL_STATE,
    metrics.EFA_PORT_RATE_BYTES_PER_SECOND,
)
_OWN = "hw_counters"
_VERSION = "module/efa/version"


class Counter(NamedTuple):
    """One file, the metric that it is shown as, and that metric's labels."""

    file: str
    name: str
    metric: Metric
    labels: dict[str, str]


class EfaDevice:
    """A device that is sampled again and again; what it counts goes to `totals` as well.

    Args:
        device: as it was found.
        sysfs: where the version of the driver is looked up.
        below: the first descriptor that is not kept between two samples.
        totals: of the node.
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
                self._counters = list(self._plan())
                self._info = {**device_info(files, self.device.pci_bus_id), "driver": self._version()}
            links = [read_link(files, port) for port in self._ports]
            values = [files.counter(counter.file) for counter in self._counters]
            # Most devices of a node have nothing to do most of the time.
            if files.changed:
                self._count(values)
                self._families = self._told(links, values)
            self._totals.down(self.device.name, sum(link.up is False for link in links))
        return self._families

    def close(self) -> None:
        """Let go of every file."""
        self.files.close()

    def _count(self, values: Iterable[int | None]) -> None:
        for counter, value in zip(self._counters, values, strict=True):
            if value is not None:
                self._totals.count(self.device.name, counter.file, counter.name, value)

    def _told(self, links: Iterable[Link], values: Iterable[int | None]) -> Sequence[Family]:
        families, name = Families(), self.device.name
        families.add(metrics.EFA_DEVICE_INFO, 1, device=name, **self._info)
        for port, link in zip(self._ports, links, strict=True):
            add_link(families, _LINK, link, name, port)
        for counter, value in zip(self._counters, values, strict=True):
            families.add(counter.metric, value, **counter.labels)
        families.add(metrics.EFA_READ_ERRORS_TOTAL, self.files.errors, device=name)
        return families.collected()

    def _plan(self) -> Iterator[Counter]:
        """Which files are read, each counter once, where it belongs if it is there.

        Drivers before 1.14 keep the counters of the device among those of its port.
        """
        own = [name for name in self.files.names(_OWN) if name not in NO_COUNTERS]
        folders = {port: self.files.names(f"ports/{port}/{_OWN}") for port in self._ports}
        there = {name for name in own if name not in metrics.PORT_COUNTERS}
        first = self._ports[0] if self._ports else ""
        for name in own:
            if name not in metrics.PORT_COUNTERS:
                yield self._of_device(f"{_OWN}/{name}", name)
            elif name not in folders.get(first, ()):
                yield self._of_port(f"{_OWN}/{name}", name, first)
        for port, names in folders.items():
            for name in names:
                file = f"ports/{port}/{_OWN}/{name}"
                if name in metrics.DEVICE_COUNTERS:
                    if name not in there:
                        there.add(name)
                        yield self._of_device(file, name)
                elif name not in NO_COUNTERS:
                    yield self._of_port(file, name, port)

    def _of_device(self, file: str, name: str) -> Counter:
        labels = {"device": self.device.name}
        if name in metrics.DEVICE_COUNTERS:
            return Counter(file, name, metrics.DEVICE_COUNTERS[name], labels)
        return Counter(file, name, metrics.EFA_HW_VALUE, {**labels, "port": "", "name": name})

    def _of_port(self, file: str, name: str, port: str) -> Counter:
        labels = {"device": self.device.name, "port": port}
        if name in metrics.PORT_COUNTERS:
            return Counter(file, name, metrics.PORT_COUNTERS[name], labels)
        return Counter(file, name, metrics.EFA_HW_VALUE, {**labels, "name": name})

    def _version(self) -> str:
        with self._driver as files:
            return label_text(files.text(_VERSION, str) or "", 64)
