"""Which collectors run here: what the flags ask for and, where they say nothing, what the node has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.node import Node
from trainwarden_exporter.registry import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping


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
        file = flags.get("config.file")
        where = f"{file}: key collector: " if file else ""
        raise UsageError(f"{where}no collector is left, expected at least one --collector.NAME")
    if "runs" not in {kind.name for kind in found}:
        _check_without_runs({kind.name for kind in found}, flags)
    return found


def _check_without_runs(names: Container[str], flags: Mapping[str, Any]) -> None:
    """Raise `UsageError` if something was asked for that only the collector of runs shows."""
    asked = {
        "--collector.s3": "s3" in names,
        "--expect.run": flags.get("expect.run"),
        "--compat.finetuning": flags.get("compat.finetuning"),
    }
    for flag, is_asked in asked.items():
        if is_asked:
            raise UsageError(f"{flag}: expected --collector.runs as well, which shows it")


def off_here(names: Container[str], flags: Mapping[str, Any]) -> str:
    """Return the collectors that would run by themselves but found nothing here, each with what it needs."""
    if flags["collector.disable_defaults"]:
        return ""
    off = [kind for kind in KINDS if kind.needs and kind.name not in names and flags[f"collector.{kind.name}"] is None]
    return ", ".join(f"{kind.name} (needs {kind.needs})" for kind in off)
