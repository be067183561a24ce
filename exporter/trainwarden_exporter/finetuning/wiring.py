"""How `--compat.finetuning` is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.finetuning.view import FinetuningView
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.sampling.task import CollectorRunner

# It looks whether there is anything new, which costs nothing where there is not.
INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0


def finetuning_member(members: Sequence[CollectorRunner], node: Node) -> Sampler:
    """Return what exports the runs of `members` as finetuning_…; raises `UsageError` if none of them has runs."""
    if "runs" not in {member.name for member in members}:
        raise UsageError("--compat.finetuning: expected --collector.runs as well, whose runs it shows")
    return Sampler(single_task(FinetuningView(members, node.host), INTERVAL_SECONDS, TIMEOUT_SECONDS))
