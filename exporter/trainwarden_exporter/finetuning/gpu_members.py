"""What samples this node's GPUs where no node exporter does: the exporter's own collectors, as they are by default."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.collector_set import node_from_flags
from trainwarden_exporter.core.exchange import RunExchange
from trainwarden_exporter.core.spec import Context
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.registry import AMD, NVIDIA

if TYPE_CHECKING:
    from trainwarden_exporter.sampling.task import CollectorRunner

log = logging.getLogger(__name__)


def gpu_members() -> list[CollectorRunner]:
    """Return one member for each vendor of which there is a GPU."""
    flags = vars(build_parser().parse_args([]))
    node = node_from_flags(flags)
    found = []
    for spec in (NVIDIA, AMD):
        context = Context(spec.name, node, flags, RunExchange())
        if spec.enabled(context):
            try:
                found.append(spec.create(context))
            except UsageError as error:
                log.warning("no GPU values of %s: %s", spec.help, error)
    return found
