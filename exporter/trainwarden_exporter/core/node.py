"""The node that is watched: its name and where its file systems are mounted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Node:
    """Name and file systems of the node.

    Attributes:
        host: its name in run records.
        sysfs, procfs, rootfs: where these are mounted: elsewhere in a container, fixture trees in tests.
    """

    host: str
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    rootfs: Path = Path("/")

    @property
    def boot_id(self) -> str:
        """The id of the kernel's boot, another after each; empty where procfs does not have it."""
        try:
            return (self.procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:64]
        except (OSError, ValueError):
            return ""


def node_from_flags(flags: Mapping[str, Any]) -> Node:
    """Return the node that the flags describe; raise `UsageError` if one of its file systems is not there."""
    for name in ("sysfs", "procfs", "rootfs"):
        path = flags[f"path.{name}"]
        if not os.path.isdir(path):  # noqa: PTH112  # Path.is_dir() raises where this user may not look
            raise UsageError(f"--path.{name} {path}: expected a folder")
    return Node(flags["instance_host"], flags["path.sysfs"], flags["path.procfs"], flags["path.rootfs"])
