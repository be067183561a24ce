"""The command `trainwarden-exporter`."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import replace_file, runs_dir
from trainwarden.record.thresholds import InvalidThreshold
from trainwarden.record.thresholds import choose as choose_thresholds
from trainwarden_exporter.collection import Collection, Schedule
from trainwarden_exporter.collectors.runs import RunsCollector
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.logs.board import Board
from trainwarden_exporter.logs.state import StateFolder, StateTaken, default_folder
from trainwarden_exporter.server import ExporterServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainwarden_exporter.collection import Collector

log = logging.getLogger(__name__)

TRANSITIONS = "trainwarden_exporter.run_transitions"
FINE, BAD, MISUSE, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """What the user asked for cannot be done; one line that names flag, value and what was expected."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT; returns the exit status."""
    flags = vars(build_parser().parse_args(argv))
    logging.basicConfig(
        stream=sys.stderr,
        level=flags["log.level"].upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if flags["once"]:
        logging.getLogger(TRANSITIONS).setLevel(logging.WARNING)  # nothing starts or ends in one look
    try:
        collection = Collection(schedules(flags))
        return collect_once(collection) if flags["once"] else serve(collection, flags)
    except UsageError as error:
        print(f"trainwarden-exporter: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED


def schedules(flags: dict[str, Any]) -> list[Schedule]:
    """Return the collectors that the flags ask for; raises `UsageError`."""
    if not flags["collector.runs"]:
        if flags["collector.logs"]:
            raise UsageError("--collector.logs: the collector of runs knows the runs, expected no --no-collector.runs")
        raise UsageError("--no-collector.runs: no collector is left, expected at least one")
    runs = flags["collector.runs.path"] or runs_dir()
    board = Board() if follows_logs(flags) else None
    wanted = [
        Schedule(runs_collector(flags, runs, board), flags["collector.runs.interval"], flags["collector.runs.timeout"])
    ]
    if board is not None:
        logs = logs_collector(flags, runs, board)
        wanted.append(Schedule(logs, flags["collector.logs.interval"], flags["collector.logs.timeout"]))
    return wanted


def follows_logs(flags: dict[str, Any]) -> bool:
    """Whether logs are to be followed; raises `UsageError` if they are asked for and cannot be."""
    if flags["collector.logs"] is False:
        return False
    if importlib.util.find_spec("yaml") is not None:
        return True
    if flags["collector.logs"]:
        raise UsageError("--collector.logs: PyYAML is not installed, expected trainwarden[exporter]")
    log.warning("logs are not followed: PyYAML is not installed")
    return False


def collect_once(collection: Collection) -> int:
    """Print one page; status 1 if a collector failed."""
    # The logs are those of the runs, and a run's page says what its logs say.
    for _ in range(3 if len(collection.samplers) > 1 else 1):
        collection.sample_once()
    sys.stdout.buffer.write(collection.page())
    sys.stdout.flush()
    return FINE if all(status.success for status in collection.statuses()) else BAD


def serve(collection: Collection, flags: dict[str, Any]) -> int:
    """Serve until a signal comes."""
    # Waited for, not handled: the kernel may give a signal to any thread, and a handler runs only once the main thread
    # comes back from a wait that the signal did not interrupt. Blocked first, so that every thread inherits it.
    signals = {signal.SIGTERM, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with open_server(collection, flags) as server, port_file(flags["web.port_file"], server.bound):
            collection.start()
            threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
            log.info("serving %s on %s", flags["web.telemetry_path"], server.bound)
            received = signal.sigwait(signals)
            collection.stop()
            server.shutdown()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    log.info("ended by %s", signal.Signals(received).name)
    return INTERRUPTED if received == signal.SIGINT else FINE


def logs_collector(flags: dict[str, Any], runs: Path, board: Board) -> Collector:
    """Return the collector of logs; raises `UsageError` if its signals cannot be read or its state not be kept."""
    # Signals, YAML and the search engine: imported for this collector alone.
    from trainwarden.signals.pack import PackError  # noqa: PLC0415
    from trainwarden_exporter.collectors.logs import LogsCollector, LogSettings  # noqa: PLC0415

    templates = tuple(flags["collector.logs.path"])
    folders = (runs, *(template.root for template in templates), *flags["collector.logs.root"])
    all_hosts = flags["collector.runs.scope"] == "all"
    settings = LogSettings(
        pack=flags["collector.logs.signals"],
        templates=templates,
        roots=tuple(str(folder.absolute()) for folder in map(Path, folders)),
        host=None if all_hosts else flags["instance_host"].partition(".")[0],
        first_read=flags["collector.logs.first_read"],
        max_files=flags["collector.logs.max_files"],
        max_series=flags["collector.logs.max_series"],
        max_runs=flags["collector.runs.max"],
    )
    try:
        return LogsCollector(board, settings, log_state(flags, runs))
    except PackError as error:
        raise UsageError(f"--collector.logs.signals {settings.pack}: {error}") from error


def log_state(flags: dict[str, Any], runs: Path) -> StateFolder | None:
    """Return where offsets and findings are kept; None, and a warning, where the default folder cannot be had."""
    given = flags["collector.logs.state"]
    path = given or default_folder(flags["instance_host"], runs)
    try:
        return StateFolder(path)
    except (OSError, StateTaken) as error:
        reason = str(error) if isinstance(error, StateTaken) else error.strerror
        if given:
            raise UsageError(f"--collector.logs.state {path}: {reason}; expected a folder of its own") from error
        log.warning("what is found in logs is not kept over a restart: %s: %s", path, reason)
        return None


def runs_collector(flags: dict[str, Any], path: Path, board: Board | None = None) -> RunsCollector:
    """Return the collector of run records; raises `UsageError` if its folder is none or cannot be read."""
    if not path.exists():
        log.warning("--collector.runs.path %s does not exist yet; its runs are exported once it does", path)
    elif not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"--collector.runs.path {path}: expected a folder that this user can read")
    try:
        defaults = choose_thresholds(None)
    except InvalidThreshold as error:
        raise UsageError(str(error)) from error
    return RunsCollector(
        path,
        host=flags["instance_host"],
        all_hosts=flags["collector.runs.scope"] == "all",
        limit=flags["collector.runs.max"],
        defaults=defaults,
        board=board,
    )


def open_server(collection: Collection, flags: dict[str, Any]) -> ExporterServer:
    """Return a server that listens; raises `UsageError` if the address cannot be had."""
    address = flags["web.listen_address"]
    try:
        return ExporterServer(address, collection, flags["web.telemetry_path"], flags["web.max_requests"])
    except OSError as error:
        shown = f"{address[0]}:{address[1]}"
        raise UsageError(f"--web.listen-address {shown}: {error.strerror}; expected an address that is free") from error


@contextlib.contextmanager
def port_file(path: Path | None, bound: str) -> Iterator[None]:
    """Keep `bound` in a file for as long as it is true."""
    if path is None:
        yield
        return
    try:
        replace_file(path, bound.encode() + b"\n")
    except OSError as error:
        raise UsageError(f"--web.port-file {path}: {error.strerror}; expected a file in a writable folder") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
