"""Which collectors run here: what the flags ask for and, where they say nothing, what the node has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.finetuning.wiring import finetuning_member
from trainwarden_exporter.logs.board import Board
from trainwarden_exporter.node import Node
from trainwarden_exporter.registry import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.sampling.part import Member


def node_of(flags: Mapping[str, Any]) -> Node:
    """Return the node that the flags describe; raises `UsageError` if one of its file systems is not there."""
    for name in ("sysfs", "procfs", "rootfs"):
        path = flags[f"path.{name}"]
        if not path.is_dir():
            raise UsageError(f"--path.{name} {path}: expected a folder")
    return Node(flags["instance_host"], flags["path.sysfs"], flags["path.procfs"], flags["path.rootfs"])


def wanted(node: Node, flags: Mapping[str, Any]) -> list[Kind]:
    """Return the collectors that are to run; raises `UsageError` if none is."""
    found = [kind for kind in KINDS if _is_wanted(kind, node, flags)]
    if not found:
        raise UsageError("no collector is left, expected at least one --collector.NAME")
    return found


def members(node: Node, flags: Mapping[str, Any]) -> list[Member]:
    """Return what samples them; raises `UsageError` if what the flags say cannot be done."""
    kinds = wanted(node, flags)
    # The logs are those of the runs.
    board = Board() if {"runs", "logs"} <= {kind.name for kind in kinds} else None
    found = [kind.wiring.member(node, flags, board) for kind in kinds]
    return [*found, finetuning_member(found, node)] if flags["compat.finetuning"] else found


def _is_wanted(kind: Kind, node: Node, flags: Mapping[str, Any]) -> bool:
    said: bool | None = flags[f"collector.{kind.name}"]
    if said is None:
        return not flags["collector.disable_defaults"] and kind.wiring.present(node, flags)
    return said
