"""How the collector of the networks that NCCL uses is set up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.sampling.part import whole
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has: none, where logs are is said to the collector of logs."""


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask for the node
    """Tell whether there is something here for it: the logs of runs."""
    followed = flags["collector.runs"] is not False and flags["collector.logs"] is not False
    return followed and importlib.util.find_spec("yaml") is not None


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Sampler:
    """Return what samples it; raises `UsageError` if nobody knows the runs and their logs."""
    if board is None:
        raise UsageError(
            "--collector.transport: it reads the logs of runs, expected --collector.runs, --collector.logs"
        )
    # It shares with the collector of logs what follows a log: imported for these alone.
    from trainwarden_exporter.runs.place import runs_folder  # noqa: PLC0415
    from trainwarden_exporter.transport.collector import TransportCollector, TransportSettings  # noqa: PLC0415

    templates = tuple(flags["collector.logs.path"])
    folders = (runs_folder(flags), *(template.root for template in templates), *flags["collector.logs.root"])
    settings = TransportSettings(
        templates=templates,
        roots=tuple(str(folder.absolute()) for folder in map(Path, folders)),
        max_files=flags["collector.logs.max_files"],
    )
    collector = TransportCollector(board, node, settings)
    return Sampler(whole(collector, flags["collector.transport.interval"], flags["collector.transport.timeout"]))
