"""How this collector is set up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu_jobs.gpus import find_gpus
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    import argparse

    from trainwarden_exporter.core.spec import Context


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.gpu-jobs.path",
        type=Path,
        metavar="FOLDER",
        help="where SLURM's prolog writes a file for each GPU, with the ids of its jobs (default: none)",
    )


def enabled(context: Context) -> bool:
    """Tell whether there is something here for it."""
    return bool(find_gpus(context.node.procfs, context.node.sysfs).all)


def create(context: Context) -> Sampler:
    """Return what samples it. A folder that is not there yet may come with the first job."""
    from trainwarden_exporter.collectors.gpu_jobs.collector import GpuJobsCollector  # noqa: PLC0415  # for this collector alone

    collector = GpuJobsCollector(context.node, context.flags["collector.gpu_jobs.path"])
    return Sampler(single_task(collector, context.interval, context.timeout))


SPEC = CollectorSpec(
    name="gpu_jobs",
    help="which job each GPU works for",
    interval="5s",
    timeout="10s",
    needs="a GPU",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
