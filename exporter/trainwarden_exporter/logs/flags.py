"""The flags of the collector of logs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.signals.tailing.template import InvalidTemplate, Template

if TYPE_CHECKING:
    from collections.abc import Callable


def add_log_flags(
    parser: argparse.ArgumentParser, duration: Callable[[str], float], count: Callable[[str], int]
) -> None:
    """Add them to the exporter's, whose durations and counts they have."""
    parser.add_argument(
        "--collector.logs",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="follow the logs of the runs (default: if the runs are exported and PyYAML is installed)",
    )
    parser.add_argument(
        "--collector.logs.path",
        type=log_template,
        action="append",
        default=[],
        metavar="TEMPLATE",
        help="where more logs are, such as /scratch/logs/{run_id}/*.out or /home/%%u/slurm-%%A_%%a.out; repeatable",
    )
    parser.add_argument(
        "--collector.logs.root",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder that links, and what runs and packs say of their logs, may lead to; repeatable",
    )
    parser.add_argument(
        "--collector.logs.signals",
        default="all",
        metavar="PACK",
        help="the signal pack, by name or file, of runs that name none (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.state",
        type=Path,
        metavar="FOLDER",
        help="where offsets and findings are kept over a restart (default: a folder for the host and the runs folder"
        " in $STATE_DIRECTORY, /var/lib/trainwarden/exporter or ~/.local/state/trainwarden/exporter)",
    )
    parser.add_argument(
        "--collector.logs.first-read",
        type=size,
        default="64MiB",
        metavar="SIZE",
        help="of a log that is seen for the first time, so much of its end is read at most (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.interval",
        type=duration,
        default="2s",
        metavar="DURATION",
        help="pause between two looks (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.timeout",
        type=duration,
        default="30s",
        metavar="DURATION",
        help="a look that takes longer counts as failed (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.max-files",
        type=count,
        default=1024,
        metavar="N",
        help="logs followed at most (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.max-series",
        type=count,
        default=20000,
        metavar="N",
        help="series of signals at most (default %(default)s)",
    )


def log_template(text: str) -> Template:
    """Parse a template that names the run."""
    try:
        template = Template.parse(text)
    except InvalidTemplate as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not template.names_run:
        raise argparse.ArgumentTypeError(f"{text!r} names no run: expected one of {{run_id}}, {{job_id}}, %j, %A in it")
    return template


def size(text: str) -> int:
    """Parse a size into bytes: 65536, 512KiB, 64MiB, 1GiB."""
    match = re.fullmatch(r"(\d{1,12})(KiB|MiB|GiB|)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: expected one such as 512KiB, 64MiB or 1GiB")
    return int(match[1]) * {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[match[2]]
