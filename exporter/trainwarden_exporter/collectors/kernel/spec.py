"""How the collector of the kernel's faults is set up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import whole

if TYPE_CHECKING:
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import Context

KMSG = "dev/kmsg"


def enabled(context: Context) -> bool:
    """Tell whether the kernel's log can be read here."""
    from trainwarden_exporter.collectors.kernel.journal import journal_readable  # noqa: PLC0415  # for this collector alone

    return _openable(context.node) or journal_readable(context.node.rootfs)


def create(context: Context) -> Sampler:
    """Return what samples it: from /dev/kmsg where that can be read or nothing can, else from the journal."""
    from trainwarden_exporter.collectors.kernel.collector import KernelCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.collectors.kernel.journal import Journal, journal_readable  # noqa: PLC0415
    from trainwarden_exporter.collectors.kernel.kmsg import KernelLog  # noqa: PLC0415

    node = context.node
    if not _openable(node) and journal_readable(node.rootfs):
        collector = KernelCollector(Journal(node.rootfs), "journal")
    else:
        collector = KernelCollector(KernelLog(node.rootfs / KMSG), "kmsg")
    return Sampler(whole(collector, context.interval, context.timeout))


def _openable(node: Node) -> bool:
    """Whether it may be read is decided when it is opened: access(2) knows nothing of kernel.dmesg_restrict."""
    try:
        os.close(os.open(node.rootfs / KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


SPEC = CollectorSpec(
    name="kernel",
    help="what the kernel says of faults",
    interval="5s",
    timeout="5s",
    needs="/dev/kmsg or the journal, readable",
    create=create,
    enabled=enabled,
)
