"""How this collector is set up."""

from __future__ import annotations

import argparse
import functools
import re
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden_exporter.core.spec import CollectorSpec, never
from trainwarden_exporter.flag_values import positive_count, some_path
from trainwarden_exporter.sampling.device_group import DeviceGroup

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context

# How often the collector's own counters are read; that costs nothing.
LOOK_SECONDS = 5.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.slurm.bin-dir",
        type=some_path,
        metavar="FOLDER",
        help="where squeue, scontrol and sinfo are (default: on PATH)",
    )
    parser.add_argument(
        "--collector.slurm.job-filter",
        type=job_filter,
        metavar="REGEX",
        help="matches the whole name of jobs that work for the run of its group run_id, "
        "such as train-(?P<run_id>.+) (default: only jobs with trainwarden:<run_id> in their comment)",
    )
    for kind, default in (("jobs", 500), ("nodes", 1000)):
        parser.add_argument(
            f"--collector.slurm.max-{kind}",
            type=positive_count,
            default=default,
            metavar="N",
            help=f"{kind} exported at most; the totals count all (default %(default)s)",
        )
    parser.add_argument(
        "--collector.slurm.max-groups",
        type=positive_count,
        default=200,
        metavar="N",
        help="partitions, accounts, users and reasons to wait exported at most, of each (default %(default)s)",
    )


def create(context: Context) -> DeviceGroup:
    """Return the collector; raises `UsageError` if a command is not there."""
    from trainwarden.clients.slurm.client import CommandsMissing, SlurmClient, find_commands  # noqa: PLC0415  # for this alone
    from trainwarden_exporter.collectors.slurm.collector import SPARE, SlurmCollector, SlurmSettings  # noqa: PLC0415  # for this alone

    flags = context.flags
    interval, timeout = context.interval, context.timeout
    # An exporter that sees the records of one node cannot know that one is missing.
    sees_all_records = flags["collector.runs.scope"] == "all"
    try:
        commands = find_commands(flags["collector.slurm.bin_dir"], ("squeue", "scontrol", "sinfo"))
    except CommandsMissing as error:
        raise UsageError(f"--collector.slurm: {error}; see --collector.slurm.bin-dir") from None
    settings = SlurmSettings(
        client=SlurmClient(commands, timeout * SPARE),
        interval=interval,
        timeout=timeout,
        max_jobs=flags["collector.slurm.max_jobs"],
        max_nodes=flags["collector.slurm.max_nodes"],
        name_filter=flags["collector.slurm.job_filter"],
        max_groups=flags["collector.slurm.max_groups"],
        expect=functools.partial(context.shared.expected.put, "slurm") if sees_all_records else None,
        put_ended=context.shared.put_ended_jobs,
    )
    context.shared.put_ended_jobs({})
    return DeviceGroup(SlurmCollector(settings), min(interval, LOOK_SECONDS), timeout)


def job_filter(text: str) -> re.Pattern[str]:
    """Parse a regular expression with a group `run_id`."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    if "run_id" not in pattern.groupindex:
        raise argparse.ArgumentTypeError(f"{text!r} has no group run_id: expected one such as train-(?P<run_id>.+)")
    return pattern


SPEC = CollectorSpec(
    name="slurm",
    help="jobs and nodes of a SLURM cluster",
    interval="30s",
    timeout="20s",
    create=create,
    # One exporter of a cluster is enough, and which one is not seen from a node.
    enabled=never,
    add_flags=add_flags,
)
