"""How the collector of the kernel's faults is set up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.sampling.part import whole
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node

KMSG = "dev/kmsg"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has: none."""


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether the kernel's log can be read here."""
    from trainwarden_exporter.kernel.journal import journal_readable  # noqa: PLC0415  # for this collector alone

    return _openable(node) or journal_readable(node.rootfs)


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Sampler:  # noqa: ARG001  # the others ask
    """Return what samples it: from /dev/kmsg where that can be read or nothing can, else from the journal."""
    from trainwarden_exporter.kernel.collector import KernelCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.kernel.journal import Journal, journal_readable  # noqa: PLC0415
    from trainwarden_exporter.kernel.kmsg import KernelLog  # noqa: PLC0415

    if not _openable(node) and journal_readable(node.rootfs):
        collector = KernelCollector(Journal(node.rootfs), "journal")
    else:
        collector = KernelCollector(KernelLog(node.rootfs / KMSG), "kmsg")
    return Sampler(whole(collector, flags["collector.kernel.interval"], flags["collector.kernel.timeout"]))


def _openable(node: Node) -> bool:
    """Whether it may be read is decided when it is opened: access(2) knows nothing of kernel.dmesg_restrict."""
    try:
        os.close(os.open(node.rootfs / KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
