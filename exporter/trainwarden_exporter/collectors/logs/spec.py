"""How the collector of logs is set up."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.logs.flags import add_log_flags
from trainwarden_exporter.collectors.logs.state import StateFolder, StateTaken, default_folder
from trainwarden_exporter.collectors.runs.place import runs_folder
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import Context

log = logging.getLogger(__name__)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    add_log_flags(parser)


def enabled(context: Context) -> bool:
    """Tell whether there is something here for it: runs, and what reads signals."""
    if context.flags["collector.runs"] is False:
        return False
    if importlib.util.find_spec("yaml") is None:
        log.warning("logs are not followed: PyYAML is not installed")
        return False
    return True


def create(context: Context) -> Sampler:
    """Return what samples it; raises `UsageError` if its signals cannot be read or its state not be kept."""
    node, flags = context.node, context.flags
    if not context.logs_followed:
        raise UsageError("--collector.logs: the collector of runs knows the runs, expected no --no-collector.runs")
    if importlib.util.find_spec("yaml") is None:
        raise UsageError("--collector.logs: PyYAML is not installed, expected trainwarden[exporter]")
    # Signals, YAML and the search engine: imported for this collector alone.
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
        collector = LogsCollector(context.exchange, settings, state)
    except PackError as error:
        if state is not None:
            state.close()
        raise UsageError(f"--collector.logs.signals {settings.pack}: {error}") from error
    return Sampler(single_task(collector, context.interval, context.timeout))


def _state(flags: Mapping[str, Any], node: Node, runs: Path) -> StateFolder | None:
    """Return where offsets and findings are kept; None, and a warning, where the default folder cannot be had."""
    given = flags["collector.logs.state"]
    path = given or default_folder(node.host, runs)
    try:
        return StateFolder(path)
    except (OSError, StateTaken) as error:
        if isinstance(error, StateTaken) and flags["once"]:
            return None  # the service beside it goes on with it
        reason = str(error) if isinstance(error, StateTaken) else f"{path}: {error.strerror}"
        if given:
            raise UsageError(f"--collector.logs.state {reason}; expected a folder of its own") from error
        log.warning("what is found in logs is not kept over a restart: %s", reason)
        return None


SPEC = CollectorSpec(
    name="logs",
    help="the logs of runs",
    interval="2s",
    timeout="30s",
    needs="the collector runs, and PyYAML",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
