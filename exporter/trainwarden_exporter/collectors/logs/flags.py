"""The flags of the collector of logs."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden.signals.tailing.template import InvalidTemplate, Template
from trainwarden_exporter.flag_values import positive_count, size


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Add them to the exporter's."""
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
        "--collector.logs.max-files",
        type=positive_count,
        default=1024,
        metavar="N",
        help="logs followed at most (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.max-series",
        type=positive_count,
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
