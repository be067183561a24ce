"""How the collector of EFA devices is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.device_group import DeviceGroup

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context


def enabled(context: Context) -> bool:
    """Tell whether there is something here for it: devices, or the word that there should be some."""
    from trainwarden_exporter.collectors.rdma.infiniband.devices import efa_functions, rdma_devices  # noqa: PLC0415  # where asked for
    from trainwarden_exporter.core.instance import inventory  # noqa: PLC0415  # as above

    node, flags = context.node, context.flags
    if flags["expect.efa_devices"]:
        return True
    known = inventory(node.sysfs)
    try:
        # Some come up minutes after the node: the PCI bus shows them before their driver does.
        return bool(known and known.efa_devices) or bool(
            any(device.is_efa for device in rdma_devices(node.sysfs)) or efa_functions(node.sysfs)
        )
    except OSError:
        return False


def create(context: Context) -> DeviceGroup:
    """Return what samples it."""
    from trainwarden_exporter.collectors.rdma.efa.collector import EfaCollector, EfaSettings  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.collectors.rdma.infiniband.kept_file import allow_many_files  # noqa: PLC0415  # as above

    allow_many_files()
    interval, timeout = context.interval, context.timeout
    settings = EfaSettings(context.flags["expect.efa_devices"], interval, timeout)
    return DeviceGroup(EfaCollector(context.node.sysfs, settings), interval, timeout, in_turn=True)


SPEC = CollectorSpec(
    name="efa",
    help="EFA devices",
    interval="5s",
    timeout="5s",
    needs="an EFA device, or --expect.efa-devices",
    create=create,
    enabled=enabled,
)
