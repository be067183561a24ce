"""`trainwarden actions`: the service, a check of its configuration, and the list of what it did."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

from trainwarden.actions.configuration import Configuration, read_configuration
from trainwarden.actions.ledger import Claim, Ledger
from trainwarden.actions.metrics import MetricsFile
from trainwarden.actions.service import ActionService
from trainwarden.clients.process import keep_child_status
from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.errors import UsageError
from trainwarden.service_log import FORMATS, escape_controls, log_to_stderr

log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Serve, check or list; return 0, 1 if the service cannot go on, 2 for misuse or a wrong configuration."""
    if argv[:1] == ["list"]:
        return _list(argv[1:])
    arguments = build_parser().parse_args(argv)
    try:
        configuration = read_configuration(arguments.config)
        if arguments.check:
            for line in configuration.starts():
                print(escape_controls(line))
            for warning in configuration.warnings:
                print(escape_controls(f"warning: {warning}"), file=sys.stderr)
            return 0
        if os.geteuid() == 0 and not arguments.allow_root:
            raise UsageError("this user is root, expected the user whose runs these are (or --allow-root)")
        log_to_stderr(arguments.log_level.upper(), log_format=arguments.log_format)
        keep_child_status()
        ledger = Ledger(arguments.state_dir)
    except UsageError as error:
        print(f"trainwarden actions: {error}", file=sys.stderr)
        return 2
    for warning in configuration.warnings:
        log.warning("%s", warning)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        service = ActionService(configuration, ledger, max_running=arguments.max_running)
        operation = _Operation(arguments, service, configuration, ledger)
        try:
            if arguments.once:
                service.run_once(stop)
            else:
                signal.signal(signal.SIGHUP, lambda *_: operation.hangup.set())
                log.info(
                    "%s: %d actions, state in %s", configuration.runs_dir, len(configuration.actions), ledger.folder
                )
                service.run(stop, arguments.interval, before=operation.reload, after=operation.report)
        finally:
            service.close(arguments.grace)
            operation.report()
    except (sqlite3.Error, OSError) as error:
        log.error("%s: %s", ledger.folder, error)  # noqa: TRY400  # a full disk: its reason says all
        return 1
    finally:
        ledger.close()
    return 0


class _Operation:
    """What an operator does to a service that runs, and sees of it: SIGHUP and the file of metrics."""

    def __init__(
        self, arguments: argparse.Namespace, service: ActionService, configuration: Configuration, ledger: Ledger
    ) -> None:
        self.hangup = threading.Event()
        self._file: Path = arguments.config
        self._metrics = MetricsFile(arguments.metrics_file) if arguments.metrics_file else None
        self._service, self._configuration, self._ledger = service, configuration, ledger
        self._reloaded = True

    def reload(self) -> None:
        """Read the configuration again after a SIGHUP. A wrong one changes nothing."""
        if not self.hangup.is_set():
            return
        self.hangup.clear()
        try:
            found = read_configuration(self._file)
        except UsageError as error:
            self._reloaded = False
            log.error("the configuration stays as it was: %s", error)  # noqa: TRY400  # its text says all
            return
        for warning in found.warnings:
            log.warning("%s", warning)
        self._service.reconfigure(found)
        self._configuration, self._reloaded = found, True
        log.info("%s was read again: %d actions", self._file, len(found.actions))

    def report(self) -> None:
        """Replace the file of metrics, where there is one."""
        if self._metrics is not None:
            actions = self._configuration.actions
            self._metrics.write(self._ledger, actions, reloaded=self._reloaded, now=time.time())


def default_state_dir() -> Path:
    """Return systemd's folder, else the user's own."""
    if given := os.environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local/state") / "trainwarden/actions"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the service's command line."""
    parser = CommandLine(
        prog="trainwarden actions",
        description="Run declared commands on events of this user's runs, such as an evaluation of each checkpoint.",
        epilog="trainwarden actions list shows what was run. "
        "exit status: 0 it was stopped; 1 its state cannot be stored; 2 wrong use or configuration",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", required=True, help="the commands and what starts them")
    _state_dir(parser)
    parser.add_argument("--check", action="store_true", help="check FILE, show what would be run, and end")
    parser.add_argument("--once", action="store_true", help="look once, wait for what that starts, and end")
    parser.add_argument("--interval", type=duration_seconds, default=5.0, help="between two looks (5s)")
    parser.add_argument("--max-running", type=_count, default=4, metavar="N", help="commands at the same time (4)")
    parser.add_argument(
        "--grace", type=duration_seconds, default=30.0, help="for commands to end when this is stopped (30s)"
    )
    parser.add_argument(
        "--metrics-file", type=Path, metavar="FILE.prom", help="replaced after each look, for node_exporter's textfile"
    )
    parser.add_argument(
        "--allow-root", action="store_true", help="serve the runs of root, where there is no other user"
    )
    levels = ("debug", "info", "warning", "error")
    parser.add_argument("--log.level", dest="log_level", choices=levels, default="info", help="(info)")
    parser.add_argument("--log.format", dest="log_format", choices=FORMATS, default=FORMATS[0], help="(text)")
    return parser


def _state_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(),
        metavar="DIR",
        help="what was run and how far each file was read; on a disk of this machine (%(default)s)",
    )


def _list(argv: list[str]) -> int:
    parser = CommandLine(prog="trainwarden actions list", description="List what was run for which event.")
    _state_dir(parser)
    parser.add_argument("--run-id", help="of this run alone")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args(argv)
    try:
        ledger = Ledger(arguments.state_dir, reading=True)
    except UsageError as error:
        print(f"trainwarden actions list: {error}", file=sys.stderr)
        return 2
    try:
        for claim in ledger.claims(run_id=arguments.run_id):
            if arguments.format == "json":
                print(json.dumps({**claim.document(), "history": ledger.history(claim)}))
            else:
                print(escape_controls(_line(claim)))
    finally:
        ledger.close()
    return 0


def _line(claim: Claim) -> str:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(claim.time))
    detail = f": {claim.detail}" if claim.detail and claim.argv else ""
    return f"{when}  {claim.state:<11}  {claim.run_id}  {claim.action}{detail}"


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number from 1 to 64")
    return int(text)
