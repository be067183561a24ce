"""Which GPUs the node has, by sysfs and the driver's files in /proc: no driver is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.bus import AMD, NVIDIA, gpus_on_bus
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from pathlib import Path

DRIVER = "driver/nvidia/gpus"
MAX_GPUS = 64
_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


@dataclass(frozen=True)
class NodeGpu:
    """One GPU.

    Attributes:
        index: its place on the PCI bus, as NVML counts.
        uuid: empty where the driver's files name none.
        minor: the number in /dev/nvidia<minor>.
    """

    index: int
    uuid: str
    minor: int | None


class NodeGpus:
    """The GPUs of the node, by index, number of the device file or UUID."""

    def __init__(self, gpus: list[NodeGpu], addresses: tuple[str, ...] = ()) -> None:
        self.all = gpus
        self.addresses = addresses
        self._by_index = {gpu.index: gpu for gpu in gpus}
        self._by_minor = {gpu.minor: gpu for gpu in gpus if gpu.minor is not None}
        self._by_uuid = {gpu.uuid.lower(): gpu for gpu in gpus if gpu.uuid}

    def by_index(self, index: int) -> NodeGpu | None:
        """Return the GPU of this index in NVML, which dcgm-exporter uses too."""
        return self._by_index.get(index)

    def by_minor(self, minor: int) -> NodeGpu | None:
        """Return the GPU of this device file, by which SLURM counts."""
        return self._by_minor.get(minor) if self._by_minor else self._by_index.get(minor)

    def by_uuid(self, uuid: str) -> NodeGpu | None:
        """Return the GPU of this UUID."""
        return self._by_uuid.get(uuid.lower())


def find_gpus(procfs: Path, sysfs: Path, before: NodeGpus | None = None) -> NodeGpus:
    """Return the GPUs of the node; none where there are none. An unreadable file of the driver costs one UUID.

    Args:
        procfs: where it is mounted.
        sysfs: likewise.
        before: the last result: its GPUs keep their index, and the driver's files are read again only for others.
    """
    known = before.addresses if before else ()
    found = gpus_on_bus(sysfs, NVIDIA) or _addresses(procfs / DRIVER)
    addresses = (*known, *(address for address in found if address not in known))[:MAX_GPUS]
    if not addresses:
        return NodeGpus([NodeGpu(index, "", None) for index, _ in enumerate(gpus_on_bus(sysfs, AMD)[:MAX_GPUS])])
    if before and before.addresses == addresses and all(gpu.uuid for gpu in before.all):
        return before
    with calling("read /proc/driver/nvidia"):
        return NodeGpus(
            [_nvidia(index, procfs / DRIVER / address) for index, address in enumerate(addresses)], addresses
        )


def _addresses(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if _ADDRESS.fullmatch(entry.name))
    except OSError:
        return []


def _nvidia(index: int, folder: Path) -> NodeGpu:
    try:
        text = (folder / "information").read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:
        return NodeGpu(index, "", None)
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    uuid, minor = fields.get("GPU UUID", ""), fields.get("Device Minor", "")
    # The UUID of a GPU that was never initialised is GPU-????????-????-….
    known = re.fullmatch(r"GPU-[0-9a-fA-F-]{36}", uuid)
    return NodeGpu(index, uuid if known else "", int(minor) if minor.isascii() and minor.isdigit() else None)
