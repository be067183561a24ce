"""How the collector of AMD GPUs is set up."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.flag_values import duration
from trainwarden_exporter.gpu.bus import AMD, NVIDIA, gpus_on_bus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node
    from trainwarden_exporter.sampling.part import Member

MODULE = "trainwarden_exporter.amd.collector"


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


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether the bus shows a GPU of the vendor, or its driver is loaded."""
    try:
        return bool(gpus_on_bus(node.sysfs, AMD)) or (node.rootfs / "dev/kfd").exists()
    except OSError:
        return False


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Member:  # noqa: ARG001  # the others ask
    """Return what samples it, in a process of its own."""
    from trainwarden_exporter.sampling.isolated import Isolated, Order  # noqa: PLC0415  # for this collector alone

    interval, timeout = flags["collector.amd.interval"], flags["collector.amd.timeout"]
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
    return Isolated(Order("amd", MODULE, interval, timeout, settings))
