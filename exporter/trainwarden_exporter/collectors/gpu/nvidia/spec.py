"""How the collector of NVIDIA GPUs is set up."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.amd.spec import enabled as amd_enabled
from trainwarden_exporter.collectors.gpu.bus import NVIDIA, gpus_on_bus
from trainwarden_exporter.core.instance import inventory
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.flag_values import duration

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context
    from trainwarden_exporter.sampling.task import CollectorRunner

MODULE = "trainwarden_exporter.collectors.gpu.nvidia.collector"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.nvidia.slow-interval",
        type=duration,
        default="30s",
        metavar="DURATION",
        help="pause between two samples of what is slow to read: ECC, links, PCIe, instances (default %(default)s)",
    )
    parser.add_argument(
        "--collector.nvidia.pci-bus",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show GPUs that are on the PCI bus and not in NVML as down; switch it off in a container that was given "
        "some of a node's GPUs",
    )


def enabled(context: Context) -> bool:
    """Return whether the bus shows a GPU of the vendor, its driver is loaded, or there should be some."""
    node = context.node
    try:
        driver = (node.procfs / "driver/nvidia/version").exists()
    except OSError:
        driver = False
    return driver or bool(gpus_on_bus(node.sysfs, NVIDIA)) or bool(_expected(context))


def create(context: Context) -> CollectorRunner:
    """Return what samples it, in a process of its own."""
    from trainwarden_exporter.sampling.subprocess_collector import ChildSpec, SubprocessCollector  # noqa: PLC0415  # for this collector alone

    node, flags = context.node, context.flags
    interval, timeout = context.interval, context.timeout
    settings = {
        "sysfs": str(node.sysfs),
        "kernel_log": str(node.rootfs / "dev/kmsg"),
        "interval": interval,
        "slow_interval": flags["collector.nvidia.slow_interval"],
        "timeout": timeout,
        "expected": _expected(context),
        "by_bus": flags["collector.nvidia.pci_bus"],
    }
    return SubprocessCollector(ChildSpec("nvidia", MODULE, interval, timeout, settings))


def _expected(context: Context) -> int | None:
    """Return how many GPUs of NVIDIA there should be: as the flag says, else the instance type; None: nobody says."""
    node, flags = context.node, context.flags
    said: int | None = flags["expect.gpus"]
    if said is not None:
        # The flag says how many GPUs, not whose: of a node that lost all of them nothing but AMD's driver tells.
        amd = flags["collector.amd"] or amd_enabled(context)
        return said if gpus_on_bus(node.sysfs, NVIDIA) or not amd else None
    known = inventory(node.sysfs)
    return known.gpus if known is not None and flags["collector.nvidia.pci_bus"] else None


SPEC = CollectorSpec(
    name="nvidia",
    help="NVIDIA GPUs",
    interval="5s",
    timeout="10s",
    needs="an NVIDIA GPU on the PCI bus, or --expect.gpus",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
