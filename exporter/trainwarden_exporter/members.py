"""Which collectors run here: what the flags ask for and, where they say nothing, what the node has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.node import Node
from trainwarden_exporter.registry import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def node_of(flags: Mapping[str, Any]) -> Node:
    """Return the node that the flags describe; raises `UsageError` if one of its file systems is not there."""
    for name in ("sysfs", "procfs", "rootfs"):
        path = flags[f"path.{name}"]
        if not os.path.isdir(path):  # noqa: PTH112  # Path.is_dir() raises where this user may not look
            raise UsageError(f"--path.{name} {path}: expected a folder")
    return Node(flags["instance_host"], flags["path.sysfs"], flags["path.procfs"], flags["path.rootfs"])


def wanted(
    node: Node, flags: Mapping[str, Any], present: Callable[[Kind, Node, Mapping[str, Any]], bool] | None = None
) -> list[Kind]:
    """Return the collectors that are to run, those of which nothing is said by `present`.

    Raises `UsageError` if there is none.
    """
    there = present or (lambda kind, node, flags: kind.wiring.present(node, flags))
    found = []
    for kind in KINDS:
        said: bool | None = flags[f"collector.{kind.name}"]
        if said or (said is None and not flags["collector.disable_defaults"] and there(kind, node, flags)):
            found.append(kind)
    if not found:
        raise UsageError("no collector is left, expected at least one --collector.NAME")
    return found
