"""`trainwarden monitor`: watch run records, and send an alert for each change of a run's status."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.monitor.alerts import AlertManager, Printed, make_alert
from trainwarden.monitor.history import AlertHistory, HistoryUnreadable, default_path
from trainwarden.monitor.settings import read_settings
from trainwarden.monitor.watch import Monitor, Round
from trainwarden.redaction import plain
from trainwarden.runs.arguments import add_stale_argument, interval_seconds, stale_seconds
from trainwarden.runs.assessment import ENDED, FAILED, SUCCEEDED, UNKNOWN, Assessment
from trainwarden.runs.places import (
    CannotRead,
    RecordPlace,
    add_place_arguments,
    fetch_run,
    open_place,
)
from trainwarden.runs.table import age_text

_INTERVAL_SECONDS = 60.0


def main(argv: list[str]) -> int:
    """Watch. Return 0 if the runs are well, 1 if one is not, 2 for misuse, 3 if that cannot be read."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return _monitor(arguments)
    except (UsageError, HistoryUnreadable) as error:
        parser.error(plain(str(error)))
    except CannotRead as error:
        print(f"trainwarden monitor: {plain(str(error))}", file=sys.stderr)
        return 2 if error.is_final else 3
    return 2


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="trainwarden monitor",
        description="Watch run records, without a Prometheus, and send an alert for each change of a run's status.",
        epilog="exit status: 0 all is well; 1 a run failed, timed out or is degraded; 2 misuse, or nothing to "
        "read; 3 cannot tell. $SLACK_WEBHOOK_URL, $SNS_TOPIC_ARN, $MONITORING_BUCKET and $MONITORING_REGION are read, "
        "also from .env.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="the same as --run-id")
    parser.add_argument("--run-id", help="the run to watch, until it ends (default: every run, until interrupted)")
    add_place_arguments(parser)
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument(
        "--interval",
        type=interval_seconds,
        default=_INTERVAL_SECONDS,
        help="between two looks: 30, 5m (default: 60 s)",
    )
    add_stale_argument(parser)
    parser.add_argument(
        "--slack-webhook", metavar="FILE", help="file with the address of an incoming webhook, or the address itself"
    )
    parser.add_argument("--sns-topic", metavar="ARN", help="topic of SNS")
    parser.add_argument(
        "--state-file",
        type=Path,
        metavar="PATH",
        help="what has been alerted about (default: in ~/.local/state/trainwarden, one for each place)",
    )
    parser.add_argument("--env-file", type=Path, metavar="PATH", help="instead of .env in this folder")
    parser.add_argument("--test-alert", action="store_true", help="send a test message, and end")
    parser.add_argument("--json", action="store_true", help="print each look as one line of JSON")
    return parser


def _monitor(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.env_file)
    run_id = _run_id(arguments)
    stale = stale_seconds(arguments, settings)
    alerts = _alert_manager(arguments, settings)
    if arguments.test_alert:
        return _test(alerts)
    with open_place(arguments, settings, prefer_s3=True) as place:
        if arguments.once and run_id:
            fetch_run(place, run_id)
        history = AlertHistory(arguments.state_file or default_path(str(place)))
        if problem := history.load():
            _complain(problem)
        if not alerts.channels:
            alerts.channels.append(Printed(_to_people))
        monitor = Monitor(place, history, alerts, run_ids=(run_id,) if run_id else (), stale_seconds=stale)
        return _watch(monitor, place, arguments, run_id)


def _watch(monitor: Monitor, place: RecordPlace, arguments: argparse.Namespace, run_id: str | None) -> int:
    shown: dict[str, str] = {}
    while True:
        now = time.time()
        found = monitor.look(now)
        _print_round(found, shown, as_json=arguments.json, every=bool(run_id) or arguments.once, now=now)
        for missing in found.missing:
            if missing not in shown:
                _complain(_not_found(place, missing))
                shown[missing] = "missing"
        if arguments.once or found.is_final:
            return status_of(found)
        if run_id and found.runs and found.runs[0].status in ENDED and not found.problems:
            return 0 if found.runs[0].status == SUCCEEDED else 1
        time.sleep(arguments.interval)


def status_of(found: Round) -> int:
    """Return the exit status for what a round found."""
    if any(run.is_bad for run in found.runs):
        return 1
    if found.problems:
        return 2 if found.is_final else 3
    return 3 if any(run.status == UNKNOWN for run in found.runs) else 0


def round_document(found: Round) -> dict[str, Any]:
    """Return a round as JSON."""
    return {
        "runs": [run.to_json() for run in found.runs],
        "missing": found.missing,
        "alerts": [{"run_id": alert.run_id, "status": alert.status, "text": alert.text()} for alert in found.sent],
        "problems": found.problems,
    }


def _print_round(found: Round, shown: dict[str, str], *, as_json: bool, every: bool, now: float) -> None:
    for problem in found.problems:
        _complain(problem)
    if as_json:
        print(json.dumps(round_document(found)), flush=True)
        return
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    for run in found.runs:
        # Of many runs only what has changed.
        if every or shown.get(run.run_id) != run.status:
            shown[run.run_id] = run.status
            print(f"[{clock}] {_line(run)}", flush=True)


def _line(run: Assessment) -> str:
    progress = run.progress
    parts = [run.run_id, run.status]
    if run.phase:
        parts.append(run.phase)
    if progress and progress.step is not None:
        parts.append(f"step {progress.step}" + (f"/{progress.total_steps}" if progress.total_steps else ""))
    if progress and progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    ages = [("metadata", run.metadata_age), ("progress", run.progress_age)]
    parts += [f"{name} {age_text(age)}" for name, age in ages if age is not None and run.status not in ENDED]
    return "  ".join(parts) + (f"  {run.reason}" if run.reason else "")


def _test(alerts: AlertManager) -> int:
    if not alerts.channels:
        raise UsageError("--test-alert: no channel; expected --slack-webhook, --sns-topic, or one of them in .env")
    context = {"instance_id": os.uname().nodename, "phase": "testing", "action": "None: this is a test"}
    failed = alerts.deliver(make_alert("test-run", FAILED, "Test alert", context), alerts.channels)
    for channel in alerts.channels:
        print(f"{channel.name}: {failed.get(channel.name, 'sent')}")
    return 1 if failed else 0


def _alert_manager(arguments: argparse.Namespace, settings: dict[str, str]) -> AlertManager:
    given = arguments.slack_webhook
    if given and "://" in given:
        _complain("--slack-webhook: every user of this machine can read an address there; write it into a file")
    try:
        return AlertManager(
            given or settings.get("SLACK_WEBHOOK_URL"), arguments.sns_topic or settings.get("SNS_TOPIC_ARN")
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _run_id(arguments: argparse.Namespace) -> str | None:
    if arguments.run and arguments.run_id:
        raise UsageError("expected RUN or --run-id, not both")
    given = arguments.run or arguments.run_id
    try:
        return check_run_id(given) if given else None
    except InvalidRunId as error:
        raise UsageError(str(error)) from None


def _not_found(place: RecordPlace, run_id: str) -> str:
    try:
        fetch_run(place, run_id)
    except (UsageError, CannotRead) as error:
        return f"{error}; waiting for it"
    return f"{run_id} has just begun"


def _to_people(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _complain(text: str) -> None:
    print(f"trainwarden monitor: {plain(text)}", file=sys.stderr, flush=True)
