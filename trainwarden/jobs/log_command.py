"""`trainwarden watch`: one log, and the process or job that writes it, watched from a terminal."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from trainwarden.command_line import CommandLine
from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError
from trainwarden.exec.tail import Tail
from trainwarden.identity import AttemptKey, InvalidRunId, check_run_id, process_lives, process_start_ticks
from trainwarden.jobs.ending import log_outcome
from trainwarden.jobs.job_record import JobRecord, NotOurs, WatchedJob
from trainwarden.monitor.alerts import AlertManager, Printed
from trainwarden.monitor.history import AlertHistory
from trainwarden.monitor.settings import read_settings
from trainwarden.monitor.watch import Monitor
from trainwarden.redaction import plain
from trainwarden.runs.assessment import Assessment
from trainwarden.runs.places import RecordFolder
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome

_INTERVAL_SECONDS = 5.0
# A log that names a failure and then stands still is that of a training which has ended, where no process is known.
_SETTLED_SECONDS = 60.0
_NO_RUN_ID = re.compile(r"[^A-Za-z0-9_-]+")


def main(argv: list[str]) -> int:
    """Watch until the training ends; return 0, 1 if it failed, 2 for misuse, 3 if how it ended is not known."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.slurm_job:
        return _adopt(arguments)
    try:
        return _watch(arguments)
    except (UsageError, NotOurs, OSError) as error:
        print(f"trainwarden watch: {plain(str(error))}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = CommandLine(
        prog="trainwarden watch",
        description="Watch one log of a training that uses no library; send an alert when it fails or stands still.",
        epilog="exit status: 0 the training succeeded, or this was interrupted; 1 it failed or was cancelled; "
        "2 misuse; 3 it has ended, and how is not known. "
        "$SLACK_WEBHOOK_URL and $SNS_TOPIC_ARN are read, also from .env.",
    )
    parser.add_argument("log", type=Path, metavar="LOGFILE", help="need not exist yet")
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--pid", type=int, help="the process of this machine that trains")
    of.add_argument("--slurm-job", metavar="JOB", help="the job that trains: as `trainwarden slurm adopt`")
    parser.add_argument("--run-id", metavar="RUN", help="(default: the name of the log)")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="DIR", help="keep the record there (default: a folder that is removed again)"
    )
    parser.add_argument(
        "--inactivity", type=_seconds, metavar="DURATION", help="that the log, or its steps, may stand still"
    )
    parser.add_argument("--interval", type=_seconds, default=_INTERVAL_SECONDS, help="between two looks (5s)")
    parser.add_argument("--slack-webhook", metavar="FILE", help="file with the address of an incoming webhook")
    parser.add_argument("--sns-topic", metavar="ARN", help="topic of SNS")
    return parser


def _adopt(arguments: argparse.Namespace) -> int:
    from trainwarden.jobs.command import main as slurm  # noqa: PLC0415  # needed for jobs of SLURM alone

    options = {"run-id": arguments.run_id, "runs-dir": arguments.runs_dir}
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    if arguments.inactivity is not None:
        given.append(f"--inactivity={arguments.inactivity:g}")
    log = str(arguments.log.absolute()).replace("%", "%%")
    return slurm(["adopt", f"--interval={arguments.interval:g}", f"--log={log}", *given, "--", arguments.slurm_job])


def _watch(arguments: argparse.Namespace) -> int:
    log = arguments.log.absolute()
    run_id = arguments.run_id or _NO_RUN_ID.sub("-", log.stem).strip("-_")[:128] or "run"
    try:
        check_run_id(run_id)
    except InvalidRunId as error:
        raise UsageError(str(error)) from None
    settings = read_settings(None)
    try:
        alerts = AlertManager(
            arguments.slack_webhook or settings.get("SLACK_WEBHOOK_URL"),
            arguments.sns_topic or settings.get("SNS_TOPIC_ARN"),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not alerts.channels:
        alerts.channels.append(Printed(lambda text: print(text, file=sys.stderr, flush=True)))
    trainer = _Trainer(arguments.pid)
    with tempfile.TemporaryDirectory(prefix="trainwarden-") as temporary:
        runs = arguments.runs_dir or Path(temporary)
        job = WatchedJob(
            run_id=run_id,
            key=trainer.key,
            user_id=log.stat().st_uid if log.exists() else os.geteuid(),
            logs=(str(log),),
            inactivity=arguments.inactivity,
        )
        record = JobRecord(runs, job)
        if not record.open():
            raise UsageError(
                f"{runs / run_id}: its record is about an attempt that has ended, expected another --run-id"
            )
        monitor = Monitor(RecordFolder(runs), AlertHistory(), alerts, run_ids=(run_id,))
        return _follow(record, trainer, monitor, arguments.interval)


def _follow(record: JobRecord, trainer: _Trainer, monitor: Monitor, interval: float) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    shown = ""
    outcome: AttemptOutcome | None = None
    try:
        while not stop.is_set():
            lives = trainer.lives
            record.look(lives=lives)
            outcome = trainer.outcome(record, lives=lives)
            if outcome is not None:
                record.end(outcome)
            found = monitor.look(time.time())
            for problem in found.problems:
                print(f"trainwarden watch: {plain(problem)}", file=sys.stderr, flush=True)
            for run in found.runs:
                if (line := _line(run)) != shown:
                    shown = line
                    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)
            if outcome is not None:
                return _status(outcome)
            stop.wait(interval)
    finally:
        record.close()
    return 0


def _status(outcome: AttemptOutcome) -> int:
    if outcome.unknown:
        return 3
    return 0 if outcome.status == "succeeded" else 1


class _Trainer:
    """What writes the log: a process of this machine, or nothing that is known."""

    def __init__(self, pid: int | None) -> None:
        ticks = process_start_ticks(pid) if pid is not None else 0
        if ticks is None:
            raise UsageError(f"--pid: there is no process {pid}")
        self._pid, self._ticks = pid, ticks
        name = f"{pid}-{ticks}" if pid is not None else f"log-{os.getpid()}"
        self.key = AttemptKey("local", name, 0)

    @property
    def lives(self) -> bool:
        """Whether it may still write."""
        if self._pid is None:
            return True
        return process_lives(self._pid) and process_start_ticks(self._pid) == self._ticks

    def outcome(self, record: JobRecord, *, lives: bool) -> AttemptOutcome | None:
        """Return how it ended; None as long as it lives."""
        if lives and self._pid is not None:
            return None
        if lives:
            return log_outcome(record.log.tail) if record.silent_for >= _SETTLED_SECONDS else None
        record.read_to_end()
        return ended_process(record.log.tail, is_done=record.is_at_last_step)


def ended_process(tail: Tail, *, is_done: bool) -> AttemptOutcome:
    """Return how a process ended whose status its parent alone has seen, by the end of its log and by its steps."""
    found = log_outcome(tail)
    if found is not None:
        return found
    if is_done:
        return SUCCEEDED
    return AttemptOutcome("cancelled", "its process has ended, and its log does not show how", unknown=True)


def _line(run: Assessment) -> str:
    step = run.progress.step if run.progress else None
    parts = [run.run_id, run.status, f"step {step}" if step is not None else "", plain(run.reason or "")]
    return "  ".join(part for part in parts if part)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
