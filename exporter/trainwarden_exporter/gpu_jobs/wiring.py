"""How this collector is set up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.gpu_jobs.gpus import find_gpus
from trainwarden_exporter.sampling.part import whole
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.gpu-jobs.path",
        type=Path,
        metavar="FOLDER",
        help="where SLURM's prolog writes a file for each GPU, with the ids of its jobs (default: none)",
    )


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether there is something here for it."""
    return bool(find_gpus(node.procfs, node.sysfs).all)


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Sampler:  # noqa: ARG001  # the others ask
    """Return what samples it. A folder that is not there yet may come with the first job."""
    from trainwarden_exporter.gpu_jobs.collector import GpuJobsCollector  # noqa: PLC0415  # for this collector alone

    collector = GpuJobsCollector(node, flags["collector.gpu_jobs.path"])
    return Sampler(whole(collector, flags["collector.gpu_jobs.interval"], flags["collector.gpu_jobs.timeout"]))
