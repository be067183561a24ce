"""How the collector of runs is set up."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record.thresholds import InvalidThreshold
from trainwarden.record.thresholds import choose as choose_thresholds
from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.expected import EXPECTED
from trainwarden_exporter.flag_values import positive_count
from trainwarden_exporter.runs.place import is_there, runs_folder
from trainwarden_exporter.s3.wiring import copies
from trainwarden_exporter.sampling.part import whole
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node

log = logging.getLogger(__name__)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.runs.path",
        type=Path,
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
        help="runs exported at most, those with the latest sign of life (default %(default)s)",
    )
    parser.add_argument(
        "--expect.run",
        action="append",
        default=[],
        type=_run_id,
        metavar="RUN_ID",
        help="a run that should leave a record here, may be repeated; until then it is pending",
    )


def _run_id(text: str) -> str:
    try:
        return check_run_id(text)
    except InvalidRunId as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def present(node: Node, flags: Mapping[str, Any]) -> bool:  # noqa: ARG001  # the others ask
    """Tell whether there is something here for it: a run may begin anywhere, at any time."""
    return True


def member(node: Node, flags: Mapping[str, Any], board: Board | None) -> Sampler:
    """Return what samples it; raises `UsageError` if its folder is none or cannot be read."""
    from trainwarden_exporter.runs.collector import RunsCollector  # noqa: PLC0415  # for this collector alone
    from trainwarden_exporter.runs.proofs import Proofs  # noqa: PLC0415

    path = runs_folder(flags)
    if not is_there(path):
        log.warning("--collector.runs.path %s does not exist yet; its runs are exported once it does", path)
    try:
        defaults = choose_thresholds(None)
    except InvalidThreshold as error:
        raise UsageError(str(error)) from error
    EXPECTED.keep("flag", flags["expect.run"], time.time())
    collector = RunsCollector(
        path,
        host=node.host,
        all_hosts=flags["collector.runs.scope"] == "all",
        limit=flags["collector.runs.max"],
        defaults=defaults,
        board=board,
        places=copies(node, flags),
        expected=EXPECTED,
        proofs=Proofs(),
    )
    return Sampler(whole(collector, flags["collector.runs.interval"], flags["collector.runs.timeout"]))
