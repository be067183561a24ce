"""The flags of the collector of logs, and how it is created."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden.signals.tailing.template import EXPECTED_RUN, InvalidTemplate, Template
from trainwarden_exporter.core.runs_folder import runs_folder
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.core.state_folder import StateFolder, StateFolderLocked, default_folder
from trainwarden_exporter.flag_values import positive_count, size, some_path
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import Context

log = logging.getLogger(__name__)

# Of a disk that takes no folder.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
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
        type=some_path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder to which links, and the log paths of runs and packs, may lead; repeatable",
    )
    parser.add_argument(
        "--collector.logs.signals",
        default="all",
        metavar="PACK",
        help="the signal pack, by name or file, of runs that name none (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.state",
        type=some_path,
        metavar="FOLDER",
        help="where offsets and findings are kept over a restart (default: a folder for the host and the runs folder"
        " in $STATE_DIRECTORY, /var/lib/trainwarden/exporter or ~/.local/state/trainwarden/exporter)",
    )
    parser.add_argument(
        "--collector.logs.first-read",
        type=size,
        default="64MiB",
        metavar="SIZE",
        help="of a log that is seen for the first time, at most this much of its end is read (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.max-files",
        type=positive_count,
        default=1024,
        metavar="N",
        help="logs followed at most; beyond it each user may have a share of as many (default %(default)s)",
    )
    parser.add_argument(
        "--collector.logs.max-series",
        type=positive_count,
        default=20000,
        metavar="N",
        help="series of signals at most; each user has a share (default %(default)s)",
    )


def log_template(text: str) -> Template:
    """Return the template of the flag's text; raise `ArgumentTypeError` if it is none or does not name the run."""
    try:
        template = Template.parse(text)
    except InvalidTemplate as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not template.names_run:
        raise argparse.ArgumentTypeError(f"{text!r} names no run: {EXPECTED_RUN}")
    return template


def enabled(context: Context) -> bool:
    """Return whether runs are collected and signals can be read."""
    if context.flags["collector.runs"] is False:
        return False
    if importlib.util.find_spec("yaml") is None:
        log.warning("logs are not followed: PyYAML is not installed")
        return False
    return True


def create(context: Context) -> Sampler:
    """Return its sampler; raise `UsageError` if its signals cannot be read or its state folder cannot be used."""
    node, flags = context.node, context.flags
    if not context.logs_followed:
        raise UsageError(
            "--collector.logs: it reads the logs of the collector of runs, expected no --no-collector.runs"
        )
    if importlib.util.find_spec("yaml") is None:
        raise UsageError("--collector.logs: PyYAML is not installed, expected trainwarden[exporter]")
    # Imports signals, YAML and the search engine, which only this collector needs.
    from trainwarden.signals.pack import PackError  # noqa: PLC0415
    from trainwarden_exporter.collectors.logs.collector import LogsCollector, LogSettings  # noqa: PLC0415

    runs = runs_folder(flags)
    templates = tuple(flags["collector.logs.path"])
    folders = (runs, *(template.root for template in templates), *flags["collector.logs.root"])
    all_hosts = flags["collector.runs.scope"] == "all"
    settings = LogSettings(
        pack=flags["collector.logs.signals"],
        templates=templates,
        roots=tuple(str(folder.absolute()) for folder in map(Path, folders)),
        host=None if all_hosts else node.host.partition(".")[0],
        first_read=flags["collector.logs.first_read"],
        max_files=flags["collector.logs.max_files"],
        max_series=flags["collector.logs.max_series"],
        max_runs=flags["collector.runs.max"],
    )
    state = _state(flags, node, runs)
    try:
        collector = LogsCollector(context.shared, settings, state)
    except PackError as error:
        if state is not None:
            state.close()
        raise UsageError(f"--collector.logs.signals {settings.pack}: {error}") from error
    task = single_task(collector, context.interval, context.timeout)
    return Sampler(task, scrape_times=context.shared.scrape_times)


def _state(flags: Mapping[str, Any], node: Node, runs: Path) -> StateFolder | None:
    """Return the folder for offsets and findings; None, with a warning, if the default folder cannot be used.

    While another exporter uses the default one, this one waits for it.

    So it is with a given one on a full disk, which costs no metrics.
    """
    given = flags["collector.logs.state"]
    path = given or default_folder(node.host, runs)
    try:
        return StateFolder(path, waits=not given and not flags["once"])
    except (OSError, StateFolderLocked) as error:
        if isinstance(error, StateFolderLocked) and flags["once"]:
            return None  # the running service has it
        reason = str(error) if isinstance(error, StateFolderLocked) else f"{path}: {error.strerror}"
        if given and getattr(error, "errno", None) not in _FULL:
            raise UsageError(f"--collector.logs.state {reason}; expected a folder of its own") from error
        log.warning("what is found in logs is lost at a restart: %s", reason)
        return None


SPEC = CollectorSpec(
    name="logs",
    help="the logs of runs",
    interval="2s",
    follows_scrapes=True,
    timeout="30s",
    needs="the collector runs, and PyYAML",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
