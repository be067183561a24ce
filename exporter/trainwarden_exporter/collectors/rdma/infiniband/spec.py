"""How the collector of RDMA devices other than EFA is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.device_group import DeviceGroup

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context


def enabled(context: Context) -> bool:
    """Tell whether there is something here for it."""
    from trainwarden_exporter.collectors.rdma.infiniband.devices import rdma_devices  # noqa: PLC0415  # where asked for

    try:
        return any(not device.is_efa for device in rdma_devices(context.node.sysfs))
    except OSError:
        return False


def create(context: Context) -> DeviceGroup:
    """Return what samples it."""
    from trainwarden_exporter.collectors.rdma.infiniband.collector import InfinibandCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.collectors.rdma.infiniband.kept_file import allow_many_files  # noqa: PLC0415  # as above

    allow_many_files()
    interval, timeout = context.interval, context.timeout
    return DeviceGroup(InfinibandCollector(context.node.sysfs, interval, timeout), interval, timeout)


SPEC = CollectorSpec(
    name="infiniband",
    help="RDMA devices other than EFA",
    interval="15s",
    timeout="5s",
    needs="an RDMA device other than EFA",
    create=create,
    enabled=enabled,
)
