"""`trainwarden watch`: one log, and the process or job that writes it, watched from a terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Protocol

from trainwarden.capabilities import reading_any
from trainwarden.clients.process import keep_child_status
from trainwarden.clients.slurm.client import SlurmError
from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.errors import UsageError
from trainwarden.exec.tail import Tail
from trainwarden.identity import AttemptKey, InvalidRunId, check_run_id, process_lives, process_start_ticks
from trainwarden.jobs.adopted_job import AdoptedJob, adopt_slurm_job, find_job, job_client
from trainwarden.jobs.configuration import JobRule, JobsConfiguration
from trainwarden.jobs.ending import log_outcome
from trainwarden.jobs.job_record import JobRecord, NotOurs, WatchedJob
from trainwarden.monitor.alerts import AlertManager, Printed
from trainwarden.monitor.history import AlertHistory
from trainwarden.monitor.settings import read_settings
from trainwarden.monitor.watch import Monitor, Round
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
    keep_child_status()
    try:
        is_there = _is_there(arguments.log)
        alerts = _alerts(arguments)
        with tempfile.TemporaryDirectory(prefix="trainwarden-") as temporary:
            runs = arguments.runs_dir or Path(temporary)
            source = _adopted(arguments, runs) if arguments.slurm_job else _Log(arguments, runs)
            if not is_there:
                awaited = plain(str(arguments.log))
                print(f"trainwarden watch: {awaited}: does not exist yet; waiting for it", file=sys.stderr, flush=True)
            records = RecordFolder(runs, is_kept=arguments.runs_dir is not None)
            return _follow(source, records, alerts, arguments.interval)
    except SlurmError as error:
        print(f"trainwarden watch: {error.reason}: {plain(error.message)}", file=sys.stderr)
        return 3
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
    of.add_argument("--pid", type=_process_id, help="the process of this machine that trains")
    of.add_argument("--slurm-job", metavar="JOB", help="the job that trains, across its requeues")
    parser.add_argument(
        "--slurm-bin-dir", type=Path, metavar="DIR", help="of squeue and scontrol (default: those on PATH)"
    )
    parser.add_argument("--run-id", metavar="RUN", help="(default: the name of the log)")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="DIR", help="keep the record there (default: a folder that is removed again)"
    )
    parser.add_argument(
        "--inactivity", type=duration_seconds, metavar="DURATION", help="that the log, or its steps, may stand still"
    )
    parser.add_argument("--interval", type=duration_seconds, default=_INTERVAL_SECONDS, help="between two looks (5s)")
    parser.add_argument("--slack-webhook", metavar="FILE", help="file with the address of an incoming webhook")
    parser.add_argument("--sns-topic", metavar="ARN", help="topic of SNS")
    return parser


def _process_id(text: str) -> int:
    if not text.isdecimal() or len(text) > 10 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the id of a process, such as 4711")
    return int(text)


def _is_there(log: Path) -> bool:
    """Return whether there is a log yet; raise UsageError for one that cannot be read."""
    try:
        with reading_any():
            os.close(os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        is_plain = log.is_file()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(f"{log}: {error.strerror}") from None
    if not is_plain:
        raise UsageError(f"{log}: is no plain file; expected a log")
    return True


class _Source(Protocol):
    """What is watched, and writes a record."""

    run_id: str | None

    def look(self, seconds: float) -> int | None:
        """Look once; return the exit status once it is over."""

    def close(self) -> None:
        """Close its log."""


def _adopted(arguments: argparse.Namespace, runs: Path) -> AdoptedJob:
    client = job_client(arguments.slurm_bin_dir)
    log = str(arguments.log.absolute()).replace("%", "%%")
    rule = JobRule(logs=(log,), inactivity=arguments.inactivity)
    job = find_job(client, arguments.slurm_job)
    return adopt_slurm_job(client, JobsConfiguration(runs), job, rule, arguments.run_id)


def _alerts(arguments: argparse.Namespace) -> AlertManager:
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
    return alerts


def _follow(source: _Source, records: RecordFolder, alerts: AlertManager, interval: float) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    shown = ""
    monitor: Monitor | None = None
    try:
        while not stop.is_set():
            status = source.look(interval)
            if monitor is None and source.run_id is not None:
                monitor = Monitor(records, AlertHistory(), alerts, run_ids=(source.run_id,))
            if monitor is not None:
                shown = _show(monitor.look(time.time()), shown)
            if status is not None:
                return status
            stop.wait(interval)
    finally:
        source.close()
    return 0


def _show(found: Round, shown: str) -> str:
    """Print the problems of a round, and how its run is where that has changed since `shown`; return what it is."""
    for problem in found.problems:
        print(f"trainwarden watch: {plain(problem)}", file=sys.stderr, flush=True)
    for run in found.runs:
        if (line := _line(run)) != shown:
            shown = line
            print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)
    return shown


class _Log:
    """A log, and what is known of the process that writes it."""

    def __init__(self, arguments: argparse.Namespace, runs: Path) -> None:
        log = arguments.log.absolute()
        run_id = arguments.run_id or _NO_RUN_ID.sub("-", log.stem).strip("-_")[:128] or "run"
        try:
            self.run_id: str | None = check_run_id(run_id)
        except InvalidRunId as error:
            raise UsageError(str(error)) from None
        self._trainer = _Trainer(arguments.pid)
        job = WatchedJob(
            run_id=run_id,
            key=self._trainer.key,
            user_id=log.stat().st_uid if log.exists() else self._trainer.user_id,
            logs=(str(log),),
            inactivity=arguments.inactivity,
            shown_by_log=arguments.pid is None,
        )
        self._problem: str | None = None
        self._record = JobRecord(runs, job)
        if not self._record.open():
            raise UsageError(
                f"{runs / run_id}: its record is about an attempt that has ended, expected another --run-id"
            )

    def look(self, seconds: float) -> int | None:  # noqa: ARG002  # of `_Source`; a local log is read at once
        """Read what is new; return the exit status once the training is over."""
        lives = self._trainer.lives
        self._record.look(lives=lives)
        problem = next(iter(self._record.log.problems.values()), None)
        if problem is not None and problem != self._problem:
            print(f"trainwarden watch: {plain(problem)}", file=sys.stderr, flush=True)
        self._problem = problem
        outcome = self._trainer.outcome(self._record, lives=lives)
        if outcome is None:
            return None
        self._record.end(outcome)
        if outcome.unknown:
            return 3
        return 0 if outcome.status == "succeeded" else 1

    def close(self) -> None:
        """Close the log."""
        self._record.close()


class _Trainer:
    """What writes the log: a process of this machine, or nothing that is known."""

    def __init__(self, pid: int | None) -> None:
        ticks = process_start_ticks(pid) if pid is not None else 0
        if ticks is None:
            judged = "trainwarden scan LOGFILE judges a log that is over"
            raise UsageError(f"--pid: there is no process {pid} any more; {judged}")
        self._pid, self._ticks = pid, ticks
        name = f"{pid}-{ticks}" if pid is not None else f"log-{os.getpid()}"
        self.key = AttemptKey("local", name, 0)

    @property
    def user_id(self) -> int:
        """Uid of the user whose process it is; this one's where none is known."""
        with contextlib.suppress(OSError):
            if self._pid is not None:
                return Path(f"/proc/{self._pid}").stat().st_uid
        return os.geteuid()

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
