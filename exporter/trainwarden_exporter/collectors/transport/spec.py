"""How the collector of the networks that NCCL uses is set up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context


def enabled(context: Context) -> bool:
    """Tell whether there is something here for it: the logs of runs."""
    followed = context.flags["collector.runs"] is not False and context.flags["collector.logs"] is not False
    return followed and importlib.util.find_spec("yaml") is not None


def create(context: Context) -> Sampler:
    """Return what samples it; raises `UsageError` if nobody knows the runs and their logs."""
    node, flags = context.node, context.flags
    if not context.logs_followed:
        raise UsageError(
            "--collector.transport: it reads the logs of runs, expected --collector.runs, --collector.logs"
        )
    # It shares with the collector of logs what follows a log: imported for these alone.
    from trainwarden_exporter.collectors.runs.place import runs_folder  # noqa: PLC0415
    from trainwarden_exporter.collectors.transport.collector import TransportCollector, TransportSettings  # noqa: PLC0415

    templates = tuple(flags["collector.logs.path"])
    folders = (runs_folder(flags), *(template.root for template in templates), *flags["collector.logs.root"])
    settings = TransportSettings(
        templates=templates,
        roots=tuple(str(folder.absolute()) for folder in map(Path, folders)),
        max_files=flags["collector.logs.max_files"],
    )
    collector = TransportCollector(context.exchange, node, settings)
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
