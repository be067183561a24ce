"""What the commands that watch the jobs of a scheduler have in common: their options, and the loop of looks."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwarden.clients.process import keep_child_status
from trainwarden.command_line import duration_seconds
from trainwarden.errors import UsageError
from trainwarden.jobs.adopted_job import AdoptedJob
from trainwarden.jobs.configuration import JobRule, policy_name, signals_of
from trainwarden.jobs.watch import JobsWatch
from trainwarden.service_log import FORMATS, escape_controls, log_to_stderr

_INTERVAL_SECONDS = 15.0
# Records are for the group, as the exporter's; logs that are copied into them are not for everybody.
_UMASK = 0o027
COMMANDS = ("watch", "adopt", "jobs")


def add_commands(parser: argparse.ArgumentParser) -> tuple[argparse.ArgumentParser, ...]:
    """Add `watch`, `adopt` and `jobs` with the options that they have for every scheduler; return their parsers."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    watch = commands.add_parser("watch", help="watch all jobs that the configuration makes runs, until stopped")
    adopt = commands.add_parser("adopt", help="watch one job that runs or waits, until it ends")
    jobs = commands.add_parser("jobs", help="list the jobs that would be watched now, each with its run and its logs")
    for each in (watch, adopt, jobs):
        each.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            required=each is watch,
            help="which jobs are runs; docs/plain-jobs.md",
        )
    for each in (watch, adopt):
        each.add_argument(
            "--interval", type=duration_seconds, default=_INTERVAL_SECONDS, help="between two looks (15s)"
        )
        levels = ("debug", "info", "warning", "error")
        each.add_argument("--log.level", dest="log_level", choices=levels, default="info", help="(info)")
        each.add_argument("--log.format", dest="log_format", choices=FORMATS, default=FORMATS[0], help="(text)")
    watch.add_argument("--once", action="store_true", help="look once, and end")
    adopt.add_argument("--runs-dir", type=Path, metavar="DIR", help="the folder of the run records")
    adopt.add_argument(
        "--inactivity", type=duration_seconds, metavar="DURATION", help="that its log, or its steps, may stand still"
    )
    adopt.add_argument(
        "--restart-stalls", action="store_true", help="a stall may be restarted too, where the policy restarts stalls"
    )
    adopt.add_argument("--policy", type=_policy, metavar="NAME", help="the restart policy that its record requests")
    adopt.add_argument(
        "--signals", metavar="PACK", help="the signals that its log is searched for: a pack, or a signal file"
    )
    return watch, adopt, jobs


def begin_service(arguments: argparse.Namespace) -> None:
    """Log to stderr, and let what is written be for the group alone."""
    log_to_stderr(arguments.log_level.upper(), log_format=arguments.log_format)
    keep_child_status()
    os.umask(_UMASK)


def watch_jobs(watch: JobsWatch[Any], arguments: argparse.Namespace) -> int:
    """Look until stopped, or once; return 0, or 3 where the one look found no answer."""
    try:
        if arguments.once:
            return 0 if watch.look(max(arguments.interval, 1.0)) else 3
        _look_until_stopped(lambda: watch.look(max(arguments.interval, 1.0)) and None, arguments.interval)
    finally:
        watch.close()
    return 0


def follow_job(adopted: AdoptedJob, arguments: argparse.Namespace) -> int:
    """Look until the job is over or this is stopped, print how it ended; return the exit status."""
    try:
        status = _look_until_stopped(lambda: adopted.look(arguments.interval), arguments.interval)
    finally:
        adopted.close()
    if status is None:
        return 0
    print(escape_controls(adopted.ending))
    return status


def with_options(rule: JobRule, arguments: argparse.Namespace) -> JobRule:
    """Return a job's rule with what the command line states in place of its values."""
    if arguments.signals:
        signals, inactivity = signals_of(arguments.signals)
        rule = replace(rule, signals=signals, inactivity=inactivity or rule.inactivity)
    stated = {
        "logs": tuple(str(Path(path).absolute()) for path in arguments.log or ()),
        "inactivity": arguments.inactivity,
        "restart_stalls": arguments.restart_stalls,
        "policy": arguments.policy,
    }
    rule = replace(rule, **{name: value for name, value in stated.items() if value})
    if rule.restart_stalls and rule.inactivity is None:
        raise UsageError("--restart-stalls: expected --inactivity beside it: how long a log may stand still")
    return rule


def _look_until_stopped(look: Callable[[], int | None], interval: float) -> int | None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        began = time.monotonic()
        if (status := look()) is not None:
            return status
        stop.wait(max(0.0, interval - (time.monotonic() - began)))
    return None


def _policy(text: str) -> str:
    try:
        return policy_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}, expected {error}") from None
