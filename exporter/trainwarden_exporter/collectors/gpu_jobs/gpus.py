"""Which GPUs the node has: those of the roster, with their numbers in the driver's files; no driver is called."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.bus import AMD, NVIDIA, gpus_on_bus
from trainwarden_exporter.collectors.gpu.roster import RosterGpu
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu.roster import NodeRoster
    from trainwarden_exporter.core.node import Node

DRIVER = "driver/nvidia/gpus"
MAX_GPUS = 64
LOOK_SECONDS = 30.0
_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


@dataclass(frozen=True)
class NodeGpu:
    """One GPU.

    Attributes:
        index: its number in the roster: its place on the PCI bus, as NVML counts, while all GPUs are there.
        uuid: as the collector of GPUs has it; where that is off, as the driver's files name it.
        minor: the number in /dev/nvidia<minor>.
        bus: its address, 0000:3b:00.0.
    """

    index: int
    uuid: str
    minor: int | None
    bus: str


class NodeGpus:
    """The GPUs of the node, by index, number of the device file, UUID or address."""

    def __init__(self, gpus: list[NodeGpu]) -> None:
        self.all = gpus
        self._by_index = {gpu.index: gpu for gpu in gpus}
        self._by_minor = {gpu.minor: gpu for gpu in gpus if gpu.minor is not None}
        self._by_uuid = {gpu.uuid.lower(): gpu for gpu in gpus if gpu.uuid}
        self._by_bus = {gpu.bus: gpu for gpu in gpus}

    def by_index(self, index: int) -> NodeGpu | None:
        """Return the GPU of this index in NVML, which dcgm-exporter uses too."""
        return self._by_index.get(index)

    def by_minor(self, minor: int) -> NodeGpu | None:
        """Return the GPU of this device file, by which SLURM counts."""
        return self._by_minor.get(minor) if self._by_minor else self._by_index.get(minor)

    def by_uuid(self, uuid: str) -> NodeGpu | None:
        """Return the GPU of this UUID."""
        return self._by_uuid.get(uuid.lower())

    def by_bus(self, bus: str) -> NodeGpu | None:
        """Return the GPU at this address."""
        return self._by_bus.get(bus.lower())


class GpuSearch:
    """Finds the GPUs again when the rosters change and every `LOOK_SECONDS`: the bus may have hundreds of devices.

    Args:
        node: where its file systems are.
        nvidia, amd: the GPUs that are known.
    """

    def __init__(self, node: Node, nvidia: NodeRoster, amd: NodeRoster) -> None:
        self._node = node
        self._nvidia, self._amd = nvidia, amd
        self._found: NodeGpus | None = None
        self._rosters: list[RosterGpu] = []
        self._looked_at = 0.0

    def find(self) -> NodeGpus:
        """Return the GPUs of the node; none where there are none."""
        now, rosters = time.monotonic(), [*self._nvidia.gpus, *self._amd.gpus]
        if self._found is None or rosters != self._rosters or now - self._looked_at > LOOK_SECONDS:
            self._found = find_gpus(self._node.procfs, self._node.sysfs, self._nvidia, self._amd)
            self._rosters = [*self._nvidia.gpus, *self._amd.gpus]
            self._looked_at = now
        return self._found


def find_gpus(procfs: Path, sysfs: Path, nvidia: NodeRoster, amd: NodeRoster) -> NodeGpus:
    """Return the GPUs of the node; none where there are none. An unreadable file of the driver costs one number.

    Args:
        procfs: where it is mounted.
        sysfs: likewise.
        nvidia: the roster of NVIDIA's GPUs; those that are found are added unless a collector samples them.
        amd: likewise AMD's.
    """
    on_bus = gpus_on_bus(sysfs, NVIDIA) or _addresses(procfs / DRIVER)
    with calling("read /proc/driver/nvidia"):
        identities = {bus: _identity(procfs / DRIVER / bus) for bus in on_bus}
    if not nvidia.is_sampled:
        nvidia.see(on_bus)
        for bus, (uuid, minor) in identities.items():
            nvidia.identify(RosterGpu(0, bus, uuid, minor), on_bus)
    if nvidia.gpus:
        taken = {minor for _, minor in identities.values()}
        return NodeGpus([_nvidia(gpu, identities.get(gpu.bus), taken) for gpu in nvidia.gpus[:MAX_GPUS]])
    if not amd.is_sampled:
        amd.see(gpus_on_bus(sysfs, AMD))
    return NodeGpus([NodeGpu(gpu.index, gpu.uuid, None, gpu.bus) for gpu in amd.gpus[:MAX_GPUS]])


def on_node(procfs: Path, sysfs: Path) -> bool:
    """Return whether the bus or the driver shows a GPU."""
    return any(gpus_on_bus(sysfs, vendor) for vendor in (NVIDIA, AMD)) or bool(_addresses(procfs / DRIVER))


def _addresses(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if _ADDRESS.fullmatch(entry.name))
    except OSError:
        return []


def _identity(folder: Path) -> tuple[str, int | None]:
    """Return the UUID and the number of a GPU's device file as the driver's files have them; empty where unknown."""
    try:
        text = (folder / "information").read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:
        return "", None
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    uuid, minor = fields.get("GPU UUID", ""), fields.get("Device Minor", "")
    # The UUID of a GPU that was never initialised is GPU-????????-????-….
    known = re.fullmatch(r"GPU-[0-9a-fA-F-]{36}", uuid)
    return uuid if known else "", int(minor) if minor.isascii() and minor.isdigit() else None


def _nvidia(gpu: RosterGpu, identity: tuple[str, int | None] | None, taken: Container[int | None]) -> NodeGpu:
    """Return a GPU of the roster; one that the driver does not have lost its number if that is another's now."""
    uuid, minor = identity or ("", None)
    if minor is None and gpu.minor not in taken:
        minor = gpu.minor
    return NodeGpu(gpu.index, gpu.uuid or uuid, minor, gpu.bus)
