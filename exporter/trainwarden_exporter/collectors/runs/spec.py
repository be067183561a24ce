"""The flags of the collector of runs, and how it is created."""

from __future__ import annotations

import argparse
import logging
import time
from typing import TYPE_CHECKING, Any

from trainwarden.command_line import valid_run_id
from trainwarden.errors import UsageError
from trainwarden.record.thresholds import InvalidThreshold
from trainwarden.record.thresholds import choose as choose_thresholds
from trainwarden_exporter.collectors.runs.last_line import LAST_LINE, NEEDED
from trainwarden_exporter.collectors.runs.limits import DEFAULT_LIMITS, RunLimits
from trainwarden_exporter.collectors.s3.spec import copies
from trainwarden_exporter.core.runs_folder import UNPROTECTED, is_unprotected, runs_folder, runs_folder_exists
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.flag_values import positive_count, size, some_path
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.core.spec import Context

log = logging.getLogger(__name__)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.runs.path",
        type=some_path,
        metavar="FOLDER",
        help="the runs folder (default: $TRAINWARDEN_RUNS_DIR, else where the library puts records)",
    )
    parser.add_argument(
        "--collector.runs.scope",
        choices=("host", "all"),
        default="host",
        help="host: what belongs to this host; all: everything, for the one exporter of a shared folder (default host)",
    )
    parser.add_argument(
        "--collector.runs.max",
        type=positive_count,
        default=2000,
        metavar="N",
        help="runs exported at most; each user has a share, running runs and the latest signs of life come first"
        " (default %(default)s)",
    )
    for name, what in (
        ("series", "series of all runs at most; each user has a share, and a user's running runs come first"),
        ("owner-series", "series of the runs of one user at most"),
        ("run-series", "series of one run at most, and with them its ranks"),
    ):
        parser.add_argument(
            f"--collector.runs.max-{name}",
            type=positive_count,
            default=getattr(DEFAULT_LIMITS, name.replace("-", "_")),
            metavar="N",
            help=f"{what} (default %(default)s)",
        )
    parser.add_argument(
        "--collector.runs.max-file",
        type=size,
        default=f"{DEFAULT_LIMITS.file_bytes // 2**10}KiB",
        metavar="SIZE",
        help="of a record, a larger file is not read (default %(default)s)",
    )
    parser.add_argument(
        "--collector.runs.max-owner-read",
        type=size,
        default=f"{DEFAULT_LIMITS.owner_bytes // 2**20}MiB",
        metavar="SIZE",
        help="of changed files of a user's records, so much is read in a sample, the rest later (default %(default)s)",
    )
    parser.add_argument(
        "--collector.runs.checkpoint-root",
        type=some_path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder in which checkpoints of other users are looked at, where they belong to the record's owner;"
        " repeatable (root looks at them with their owner's rights, wherever they are)",
    )
    parser.add_argument(
        "--collector.runs.last-line",
        choices=LAST_LINE,
        default=NEEDED,
        help="when training_failure_message_info has the last line of a run's log: needed, while the attempt failed or "
        "has been quiet for half of a threshold; always; never (default %(default)s)",
    )
    parser.add_argument(
        "--expect.run",
        action="append",
        default=[],
        type=valid_run_id,
        metavar="RUN_ID",
        help="a run that is expected to leave a record here; pending until then; repeatable",
    )


def limits_from(flags: Mapping[str, Any]) -> RunLimits:
    """Return the limits that the flags set."""
    return RunLimits(
        runs=flags["collector.runs.max"],
        file_bytes=flags["collector.runs.max_file"],
        owner_bytes=flags["collector.runs.max_owner_read"],
        series=flags["collector.runs.max_series"],
        owner_series=flags["collector.runs.max_owner_series"],
        run_series=flags["collector.runs.max_run_series"],
    )


def create(context: Context) -> Sampler:
    """Return its sampler; raise `UsageError` if the runs folder cannot be read."""
    # Where it is on.
    from trainwarden_exporter.collectors.runs.checkpoints import CheckpointAccess, CheckpointVerifier  # noqa: PLC0415
    from trainwarden_exporter.collectors.runs.collector import RunsCollector  # noqa: PLC0415

    node, flags = context.node, context.flags
    path = runs_folder(flags)
    if not runs_folder_exists(path):
        log.warning("--collector.runs.path %s does not exist yet; its runs are exported once it does", path)
    if is_unprotected(path):
        log.warning("--collector.runs.path %s: %s", path, UNPROTECTED)
    try:
        defaults = choose_thresholds(None)
    except InvalidThreshold as error:
        raise UsageError(str(error)) from error
    context.shared.expected.keep("flag", flags["expect.run"], time.time())
    collector = RunsCollector(
        path,
        context.shared,
        host=node.host,
        all_hosts=flags["collector.runs.scope"] == "all",
        limit=flags["collector.runs.max"],
        limits=limits_from(flags),
        last_line=flags["collector.runs.last_line"],
        defaults=defaults,
        logs_followed=context.logs_followed,
        copies=copies(context),
        s3_interval=flags["collector.s3.interval"],
        procfs=node.procfs,
        checkpoints=CheckpointVerifier(CheckpointAccess((path, *flags["collector.runs.checkpoint_root"])).verify),
    )
    task = single_task(collector, context.interval, context.timeout)
    return Sampler(task, scrape_times=context.shared.scrape_times)


SPEC = CollectorSpec(
    name="runs",
    help="the records of runs",
    interval="2s",
    follows_scrapes=True,
    timeout="10s",
    create=create,
    add_flags=add_flags,
)
