"""How the collector of the networks that NCCL uses is created."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context


def enabled(context: Context) -> bool:
    """Return whether the logs of runs are read."""
    followed = context.flags["collector.runs"] is not False and context.flags["collector.logs"] is not False
    return followed and importlib.util.find_spec("yaml") is not None


def create(context: Context) -> Sampler:
    """Return its sampler; raise `UsageError` if the collectors of runs and logs are not both on."""
    if not context.logs_followed:
        raise UsageError(
            "--collector.transport: it reads the logs of runs, expected --collector.runs, --collector.logs"
        )
    from trainwarden_exporter.collectors.transport.collector import TransportCollector  # noqa: PLC0415  # where it is on

    collector = TransportCollector(context.shared, context.node)
    return Sampler(single_task(collector, context.interval, context.timeout))


SPEC = CollectorSpec(
    name="transport",
    help="which network NCCL uses for each run",
    interval="15s",
    timeout="30s",
    needs="the collectors runs and logs",
    create=create,
    enabled=enabled,
)
