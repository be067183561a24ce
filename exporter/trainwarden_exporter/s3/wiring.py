"""How this collector is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwarden_exporter.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node
    from trainwarden_exporter.sampling.part import Member


def add_flags(parser: argparse.ArgumentParser) -> None:  # the others have some
    """Add the flags that only this collector has."""


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether there is something here for it."""
    return False


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Member:  # noqa: ARG001  # the others ask
    """Return what samples it; raises `UsageError` if what the flags say cannot be done."""
    raise UsageError("--collector.s3: not there yet")
