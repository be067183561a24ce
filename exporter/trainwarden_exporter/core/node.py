"""The node that is watched: its name and where its file systems are mounted."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.environment import ec2_instance_type, instance_id
from trainwarden.errors import UsageError
from trainwarden.identity import boot_id
from trainwarden.redaction import name_text
from trainwarden_exporter.core.metric import gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.core.metric import Families

TRAINWARDEN_NODE_INFO = gauge(
    "trainwarden_node_info",
    "host slurm_node instance_id instance_type",
    "1",
    "Names of the node on which the exporter runs: in run records, in SLURM, in the cloud; empty where unknown.",
    "--instance-host, --instance-slurm-node; variables, cloud-init and /sys/class/dmi/id, never the network",
    "up * on (instance) group_left (host, slurm_node, instance_id) trainwarden_node_info",
)


@dataclass(frozen=True)
class Node:
    """Name and file systems of the node.

    Attributes:
        host: its name in run records.
        sysfs, procfs, rootfs: where these are mounted: elsewhere in a container, fixture trees in tests.
        slurm_node: its name in SLURM.
    """

    host: str
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    rootfs: Path = Path("/")
    slurm_node: str = ""

    @property
    def boot_id(self) -> str:
        """The id of the kernel's boot, another after each; empty where procfs does not have it."""
        return boot_id(self.procfs)

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        """The labels of `trainwarden_node_info`; what no variable or file here states is empty."""
        dmi = str(self.sysfs.absolute() / "class/dmi/id")
        stated = {
            "host": self.host,
            "slurm_node": self.slurm_node,
            "instance_id": instance_id(os.environ, str(self.rootfs), dmi),
            "instance_type": ec2_instance_type(dmi=dmi),
        }
        return {name: name_text(text or "") for name, text in stated.items()}

    def add_info(self, families: Families) -> None:
        """Add by which names the node is known."""
        families.add(TRAINWARDEN_NODE_INFO, 1, **self.names)


def slurm_node_name(host: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a node's name in SLURM: what slurmd states, else the host's name without domain, as slurmd takes it."""
    first = host.partition(".")[0]
    # An address has no domain.
    return environ.get("SLURMD_NODENAME") or (host if first.isdigit() else first)


def node_from_flags(flags: Mapping[str, Any]) -> Node:
    """Return the node that the flags describe; raise `UsageError` if one of its file systems is not there."""
    for name in ("sysfs", "procfs", "rootfs"):
        path = flags[f"path.{name}"]
        if not os.path.isdir(path):  # noqa: PTH112  # Path.is_dir() raises where this user may not look
            raise UsageError(f"--path.{name} {path}: expected a folder")
    host = flags["instance_host"]
    slurm_node = flags["instance_slurm_node"] or slurm_node_name(host)
    return Node(host, flags["path.sysfs"], flags["path.procfs"], flags["path.rootfs"], slurm_node)
