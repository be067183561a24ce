"""How the collector of AMD GPUs is set up."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.bus import AMD, NVIDIA, gpus_on_bus
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.flag_values import duration

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context
    from trainwarden_exporter.sampling.task import CollectorRunner

MODULE = "trainwarden_exporter.collectors.gpu.amd.collector"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.amd.slow-interval",
        type=duration,
        default="30s",
        metavar="DURATION",
        help="pause between two samples of what is slow to read: ECC, links, PCIe, throttling (default %(default)s)",
    )
    parser.add_argument(
        "--collector.amd.pci-bus",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show GPUs that are on the PCI bus and not in amdsmi as down; switch it off in a container that was given "
        "some of a node's GPUs",
    )


def enabled(context: Context) -> bool:
    """Tell whether the bus shows a GPU of the vendor, or its driver is loaded."""
    try:
        return bool(gpus_on_bus(context.node.sysfs, AMD)) or (context.node.rootfs / "dev/kfd").exists()
    except OSError:
        return False


def create(context: Context) -> CollectorRunner:
    """Return what samples it, in a process of its own."""
    from trainwarden_exporter.sampling.subprocess_collector import ChildSpec, SubprocessCollector  # noqa: PLC0415  # for this collector alone

    node, flags = context.node, context.flags
    interval, timeout = context.interval, context.timeout
    # The flag says how many GPUs there should be, not whose: it is of the other vendor's where there are such.
    expected = None if gpus_on_bus(node.sysfs, NVIDIA) else flags["expect.gpus"]
    settings = {
        "sysfs": str(node.sysfs),
        "interval": interval,
        "slow_interval": flags["collector.amd.slow_interval"],
        "timeout": timeout,
        "expected": expected,
        "by_bus": flags["collector.amd.pci_bus"],
    }
    return SubprocessCollector(ChildSpec("amd", MODULE, interval, timeout, settings))


SPEC = CollectorSpec(
    name="amd",
    help="AMD GPUs",
    interval="5s",
    timeout="10s",
    needs="an AMD GPU on the PCI bus, or /dev/kfd",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
