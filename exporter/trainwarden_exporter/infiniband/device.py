"""One RDMA device: what its files say, as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.catalog import Families
from trainwarden_exporter.infiniband.catalog import COUNTERS
from trainwarden_exporter.infiniband.device_files import DeviceFiles
from trainwarden_exporter.infiniband.info import device_info
from trainwarden_exporter.infiniband.port import add_link, ports, read_link
from trainwarden_exporter.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.infiniband.devices import RdmaDevice
    from trainwarden_exporter.metric import Family


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
            families.add("infiniband_info", 1, device=name, **self._info)
            for port in ports(files):
                add_link(families, "infiniband", read_link(files, port), name, port)
                self._add_counters(families, port)
            families.add("infiniband_read_errors_total", files.errors, device=name)
        return families.collected()

    def close(self) -> None:
        """Let go of every file."""
        self.files.close()

    def _add_counters(self, families: Families, port: str) -> None:
        folder = f"ports/{port}/counters"
        there = self.files.names(folder)
        for file, metric, _, _, factor in COUNTERS:
            value = self.files.counter(f"{folder}/{file}") if file in there else None
            families.add(metric, None if value is None else value * factor, device=self.device.name, port=port)
