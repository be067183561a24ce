"""The node that is watched: its name and where its file systems are mounted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Node:
    """What every collector needs to know of the node.

    Attributes:
        host: its name in run records.
        sysfs, procfs, rootfs: where these are mounted: elsewhere in a container, fixture trees in tests.
    """

    host: str
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    rootfs: Path = Path("/")
