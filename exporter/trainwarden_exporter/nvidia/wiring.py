"""How the collector of NVIDIA GPUs is set up."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.amd.wiring import present as amd_present
from trainwarden_exporter.flag_values import duration
from trainwarden_exporter.gpu.bus import NVIDIA, gpus_on_bus
from trainwarden_exporter.instance import inventory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node
    from trainwarden_exporter.sampling.part import Member

MODULE = "trainwarden_exporter.nvidia.collector"


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


def present(node: Node, flags: Mapping[str, Any]) -> bool:
    """Tell whether the bus shows a GPU of the vendor, its driver is loaded, or there should be some."""
    try:
        driver = (node.procfs / "driver/nvidia/version").exists()
    except OSError:
        driver = False
    return driver or bool(gpus_on_bus(node.sysfs, NVIDIA)) or bool(_expected(node, flags))


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Member:  # noqa: ARG001  # the others ask
    """Return what samples it, in a process of its own."""
    from trainwarden_exporter.sampling.isolated import Isolated, Order  # noqa: PLC0415  # for this collector alone

    interval, timeout = flags["collector.nvidia.interval"], flags["collector.nvidia.timeout"]
    settings = {
        "sysfs": str(node.sysfs),
        "kernel_log": str(node.rootfs / "dev/kmsg"),
        "interval": interval,
        "slow_interval": flags["collector.nvidia.slow_interval"],
        "timeout": timeout,
        "expected": _expected(node, flags),
        "by_bus": flags["collector.nvidia.pci_bus"],
    }
    return Isolated(Order("nvidia", MODULE, interval, timeout, settings))


def _expected(node: Node, flags: Mapping[str, Any]) -> int | None:
    """Return how many GPUs of NVIDIA there should be: as the flag says, else the instance type; None: nobody says."""
    said: int | None = flags["expect.gpus"]
    if said is not None:
        # The flag says how many GPUs, not whose: of a node that lost all of them nothing but AMD's driver tells.
        amd = flags["collector.amd"] or amd_present(node, flags)
        return said if gpus_on_bus(node.sysfs, NVIDIA) or not amd else None
    known = inventory(node.sysfs)
    return known.gpus if known is not None and flags["collector.nvidia.pci_bus"] else None
