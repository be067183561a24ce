"""How the collector of RDMA devices other than EFA is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwarden_exporter.sampling.fleet import Fleet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has: none."""


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether there is something here for it."""
    from trainwarden_exporter.infiniband.devices import rdma_devices  # noqa: PLC0415  # where asked for

    try:
        return any(not device.is_efa for device in rdma_devices(node.sysfs))
    except OSError:
        return False


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Fleet:  # noqa: ARG001  # the others ask
    """Return what samples it."""
    from trainwarden_exporter.infiniband.collector import InfinibandCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.infiniband.kept_file import allow_many_files  # noqa: PLC0415  # as above

    allow_many_files()
    interval, timeout = flags["collector.infiniband.interval"], flags["collector.infiniband.timeout"]
    return Fleet(InfinibandCollector(node.sysfs, interval, timeout), interval, timeout)
