"""How the collectors `nvidia` and `amd` are set up: one GPU collector with two drivers."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from trainwarden.command_line import duration_seconds
from trainwarden_exporter.collectors.gpu.bus import AMD, NVIDIA, gpus_on_bus
from trainwarden_exporter.collectors.gpu.roster import NodeRoster
from trainwarden_exporter.core.instance import inventory
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.core.state_file import HOLDER, node_state

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context
    from trainwarden_exporter.sampling.task import CollectorRunner

# Imported by the child process alone, which calls its `build`.
MODULE = "trainwarden_exporter.collectors.gpu.collector"


def roster_of(context: Context, vendor: str) -> NodeRoster:
    """Return the one roster of a vendor's GPUs on the node, read from its file the first time."""
    rosters, node = context.shared.gpus, context.node
    if (vendor, node) not in rosters:
        rosters[vendor, node] = NodeRoster(node_state(context.flags, node, f"gpus-{vendor}", durable=True))
    return rosters[vendor, node]


def _add_flags(name: str, library: str, slow: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        f"--collector.{name}.slow-interval",
        type=duration_seconds,
        default="30s",
        metavar="DURATION",
        help=f"pause between two samples of values that are slow to read: {slow} (default %(default)s)",
    )
    parser.add_argument(
        f"--collector.{name}.pci-bus",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=f"show GPUs that are on the PCI bus and not in {library} as down; switch it off in a container that was "
        "given some of a node's GPUs",
    )


def _add_nvidia_flags(parser: argparse.ArgumentParser) -> None:
    _add_flags("nvidia", "NVML", "ECC, links, PCIe, instances", parser)
    parser.add_argument(
        "--collector.nvidia.activity",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="export how busy the multiprocessors, tensor cores and the memory are, where the card offers it (Hopper)",
    )


def nvidia_enabled(context: Context) -> bool:
    """Return whether the bus shows an NVIDIA GPU, the driver is loaded, there should be some, or there was one."""
    node = context.node
    try:
        driver = (node.procfs / "driver/nvidia/version").exists()
    except OSError:
        driver = False
    known = bool(gpus_on_bus(node.sysfs, NVIDIA)) or bool(roster_of(context, "nvidia").gpus)
    return driver or known or bool(_expected_nvidia(context))


def amd_enabled(context: Context) -> bool:
    """Return whether the bus shows an AMD GPU, the driver is loaded, or there was one."""
    try:
        known = bool(gpus_on_bus(context.node.sysfs, AMD)) or bool(roster_of(context, "amd").gpus)
        return known or (context.node.rootfs / "dev/kfd").exists()
    except OSError:
        return False


def _create_nvidia(context: Context) -> CollectorRunner:
    node, flags = context.node, context.flags
    xids = node_state(flags, node, "xids")
    return _create(
        context,
        NVIDIA,
        expected=_expected_nvidia(context),
        kernel_log=str(node.rootfs / "dev/kmsg"),
        xid_state={
            "path": str(xids.path),
            "writable": xids.writable,
            "machine": xids.machine,
            "holder": HOLDER,
        },
        boot_id=node.boot_id,
        activity=flags["collector.nvidia.activity"],
    )


def _create_amd(context: Context) -> CollectorRunner:
    # The flag counts GPUs of either vendor: they are NVIDIA's where the bus shows such.
    expected = None if gpus_on_bus(context.node.sysfs, NVIDIA) else context.flags["expect.gpus"]
    return _create(context, AMD, expected=expected)


def _create(context: Context, pci_vendor: int, **settings: Any) -> CollectorRunner:
    """Return the runner of one vendor's collector, in a process of its own: a call of a driver may never return."""
    from trainwarden_exporter.sampling.subprocess_collector import ChildSpec, SubprocessCollector  # noqa: PLC0415  # for this collector alone

    name, flags = context.name, context.flags
    interval, timeout = context.interval, context.timeout
    settings |= {
        "vendor": name,
        "sysfs": str(context.node.sysfs),
        "interval": interval,
        "slow_interval": flags[f"collector.{name}.slow_interval"],
        "timeout": timeout,
        "by_bus": flags[f"collector.{name}.pci_bus"],
    }
    roster = roster_of(context, name)
    roster.is_sampled = True
    if settings["by_bus"]:
        roster.see(gpus_on_bus(context.node.sysfs, pci_vendor))  # `gpu_jobs` needs no child to number them
    keepers = {"roster": roster}
    return SubprocessCollector(ChildSpec(name, MODULE, interval, timeout, settings, keepers, follows_scrapes=True))


def _expected_nvidia(context: Context) -> int | None:
    """Return how many NVIDIA GPUs there should be, by the flag, else the instance type; None where neither gives it."""
    node, flags = context.node, context.flags
    expected: int | None = flags["expect.gpus"]
    if expected is not None:
        # The flag counts GPUs of either vendor: on a node that lost all of them only AMD's driver shows whose they are.
        amd = flags["collector.amd"] or amd_enabled(context)
        return expected if gpus_on_bus(node.sysfs, NVIDIA) or not amd else None
    known = inventory(node.sysfs)
    return known.gpus if known is not None and flags["collector.nvidia.pci_bus"] else None


NVIDIA_SPEC = CollectorSpec(
    name="nvidia",
    help="NVIDIA GPUs",
    interval="5s",
    timeout="10s",
    needs="an NVIDIA GPU on the PCI bus, or --expect.gpus",
    create=_create_nvidia,
    enabled=nvidia_enabled,
    follows_scrapes=True,
    add_flags=_add_nvidia_flags,
)
AMD_SPEC = CollectorSpec(
    name="amd",
    help="AMD GPUs",
    interval="5s",
    timeout="10s",
    needs="an AMD GPU on the PCI bus, or /dev/kfd",
    create=_create_amd,
    enabled=amd_enabled,
    follows_scrapes=True,
    add_flags=partial(_add_flags, "amd", "amdsmi", "ECC, links, PCIe, throttling"),
)
