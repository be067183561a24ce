"""How the collector of the exporter itself is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwarden_exporter.sampling.part import whole
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has: none."""


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether there is something here for it: there is always the exporter."""
    return True


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Sampler:  # noqa: ARG001  # the others ask
    """Return what samples it."""
    from trainwarden_exporter.process.collector import ProcessCollector  # noqa: PLC0415  # for this collector alone

    return Sampler(whole(ProcessCollector(), flags["collector.process.interval"], flags["collector.process.timeout"]))
