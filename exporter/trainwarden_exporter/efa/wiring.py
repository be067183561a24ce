"""How the collector of EFA devices is set up."""

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


def present(node: Node, flags: Mapping[str, Any]) -> bool:
    """Tell whether there is something here for it: devices, or the word that there should be some."""
    from trainwarden_exporter.infiniband.devices import efa_functions, rdma_devices  # noqa: PLC0415  # where asked for
    from trainwarden_exporter.instance import inventory  # noqa: PLC0415  # as above

    if flags["expect.efa_devices"]:
        return True
    known = inventory(node.sysfs)
    try:
        # Some come up minutes after the node: the PCI bus shows them before their driver does.
        return bool(known and known.efa_devices) or bool(
            any(device.is_efa for device in rdma_devices(node.sysfs)) or efa_functions(node.sysfs)
        )
    except OSError:
        return False


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Fleet:  # noqa: ARG001  # the others ask
    """Return what samples it."""
    from trainwarden_exporter.efa.collector import EfaCollector, EfaSettings  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.infiniband.kept_file import allow_many_files  # noqa: PLC0415  # as above

    allow_many_files()
    interval, timeout = flags["collector.efa.interval"], flags["collector.efa.timeout"]
    settings = EfaSettings(flags["expect.efa_devices"], interval, timeout)
    return Fleet(EfaCollector(node.sysfs, settings), interval, timeout, in_turn=True)
