"""What samples this node's GPUs where no node exporter does: the exporter's own collectors, as they are by default."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.members import node_of
from trainwarden_exporter.registry import KINDS

if TYPE_CHECKING:
    from trainwarden_exporter.sampling.part import Member

log = logging.getLogger(__name__)

VENDORS = ("nvidia", "amd")


def gpu_members() -> list[Member]:
    """Return one member for each vendor of which there is a GPU."""
    flags = vars(build_parser().parse_args([]))
    node = node_of(flags)
    found = []
    for kind in KINDS:
        if kind.name in VENDORS and kind.wiring.present(node, flags):
            try:
                found.append(kind.wiring.member(node, flags, None))
            except UsageError as error:
                log.warning("no GPU values of %s: %s", kind.help, error)
    return found
