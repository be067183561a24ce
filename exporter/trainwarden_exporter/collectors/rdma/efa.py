"""The collector of EFA devices: their counters, links, and how many there should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma import efa_metrics
from trainwarden_exporter.collectors.rdma.collector import RdmaCollector
from trainwarden_exporter.collectors.rdma.devices import efa_functions, rdma_devices
from trainwarden_exporter.collectors.rdma.efa_device import EfaDevice, NodeTotals
from trainwarden_exporter.collectors.rdma.files import allow_many_files
from trainwarden_exporter.core.instance import inventory
from trainwarden_exporter.core.scrape_times import LONGEST_SECONDS, ScrapeTimes
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.device_group import DeviceGroup

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden_exporter.collectors.rdma.devices import RdmaDevice
    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.core.spec import Context


class EfaCollector(RdmaCollector):
    """Exports the EFA devices; arguments as of `RdmaCollector`, `expected`: how many there should be, if known."""

    name = "efa"
    count = efa_metrics.EFA_DEVICES
    up = efa_metrics.EFA_DEVICE_UP

    def __init__(self, sysfs: Path, interval: float, timeout: float, *, expected: int | None = None) -> None:
        super().__init__(sysfs, interval, timeout)
        self._expected = expected
        self._totals = NodeTotals(max(interval, LONGEST_SECONDS) + interval + timeout)

    def _is_sampled(self, device: RdmaDevice) -> bool:
        return device.is_efa

    def _opened(self, device: RdmaDevice) -> EfaDevice:
        return EfaDevice(device, str(self._sysfs), self._below, self._totals)

    def _vanished(self, name: str) -> None:
        self._totals.forget(name)

    def _add_node(self, families: Families) -> None:
        families.add(efa_metrics.EFA_DEVICES_EXPECTED, self._expected_devices())
        families.add(efa_metrics.EFA_NODE_DEVICES_DOWN, sum(not present for present in self._known.up.values()))
        self._totals.add_to(families)

    def _expected_devices(self) -> int | None:
        if self._expected is not None:
            return self._expected
        with calling("read /sys/bus/pci/devices"):
            known = inventory(self._sysfs)
            return known.efa_devices if known else efa_functions(self._sysfs)


def enabled(context: Context) -> bool:
    """Return whether there are EFA devices here, or should be some."""
    if context.flags["expect.efa_devices"]:
        return True
    sysfs = context.node.sysfs
    known = inventory(sysfs)
    try:
        # Some come up minutes after the node: the PCI bus shows them before their driver does.
        return bool(known and known.efa_devices) or bool(
            any(device.is_efa for device in rdma_devices(sysfs)) or efa_functions(sysfs)
        )
    except OSError:
        return False


def create(context: Context) -> DeviceGroup:
    """Return the runner of the collector."""
    allow_many_files()
    expected = context.flags["expect.efa_devices"]
    collector = EfaCollector(context.node.sysfs, context.interval, context.timeout, expected=expected)
    return DeviceGroup(collector, context.interval, context.timeout, in_turn=True, scrape_times=ScrapeTimes())


SPEC = CollectorSpec(
    name="efa",
    help="EFA devices",
    interval="5s",
    timeout="5s",
    needs="an EFA device, or --expect.efa-devices",
    create=create,
    enabled=enabled,
    follows_scrapes=True,
)
