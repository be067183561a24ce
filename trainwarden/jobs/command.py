"""`trainwarden slurm`: watch jobs that use no library, adopt one that runs, list what would be watched."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from trainwarden.capabilities import lower_read_search
from trainwarden.clients.process import keep_child_status
from trainwarden.clients.slurm.client import SlurmClient, SlurmError, UnreadableRecord
from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId
from trainwarden.jobs.adopted_job import AdoptedJob, find_job, job_client
from trainwarden.jobs.configuration import JobRule, JobsConfiguration, policy_name, read_configuration, signals_of
from trainwarden.jobs.slurm_run import job_logs, run_id_of
from trainwarden.jobs.slurm_watch import SlurmWatch
from trainwarden.record.folder import runs_dir
from trainwarden.service_log import FORMATS, escape_controls, log_to_stderr

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 15.0
# Records are for the group, as the exporter's; logs that are copied into them are not for everybody.
_UMASK = 0o027
_COMMANDS = ("watch", "adopt", "jobs")


def main(argv: list[str]) -> int:
    """Watch, adopt or list; return 0, 1 if the job failed, 2 for misuse, 3 if SLURM does not say how it ended."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    lower_read_search()
    try:
        configuration = read_configuration(arguments.config) if arguments.config else JobsConfiguration(runs_dir())
        client = job_client(arguments.slurm_bin_dir)
        if arguments.command == "jobs":
            return _jobs(client, configuration)
        log_to_stderr(arguments.log_level.upper(), log_format=arguments.log_format)
        keep_child_status()
        os.umask(_UMASK)
        if arguments.command == "adopt":
            return _adopt(client, configuration, arguments)
        return _watch(SlurmWatch(client, configuration), arguments)
    except UsageError as error:
        print(f"trainwarden slurm: {error}", file=sys.stderr)
        return 2
    except SlurmError as error:
        print(f"trainwarden slurm: {error.reason}: {error.message}", file=sys.stderr)
        return 3


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = CommandLine(
        prog="trainwarden slurm",
        description="Make runs of SLURM jobs that use no library: their records, from the scheduler and their logs.",
        epilog="exit status: 0 it was stopped, or the job succeeded; 1 the job failed or was cancelled; 2 misuse, a "
        "wrong configuration, or a job whose record is another's; 3 SLURM gives no answer, or how the job ended is not "
        "known",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(_COMMANDS))
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
        each.add_argument(
            "--slurm-bin-dir", type=Path, metavar="DIR", help="of squeue and scontrol (default: those on PATH)"
        )
    for each in (watch, adopt):
        each.add_argument(
            "--interval", type=duration_seconds, default=_INTERVAL_SECONDS, help="between two looks (15s)"
        )
        levels = ("debug", "info", "warning", "error")
        each.add_argument("--log.level", dest="log_level", choices=levels, default="info", help="(info)")
        each.add_argument("--log.format", dest="log_format", choices=FORMATS, default=FORMATS[0], help="(text)")
    watch.add_argument("--once", action="store_true", help="look once, and end")
    adopt.add_argument("job", metavar="JOB", help="a job's id, such as 4711 or 4711_3")
    adopt.add_argument("--run-id", metavar="RUN", help="(default: that of its mark, else NAME-JOB)")
    adopt.add_argument("--runs-dir", type=Path, metavar="DIR", help="the folder of the run records")
    adopt.add_argument(
        "--inactivity", type=duration_seconds, metavar="DURATION", help="that its log, or its steps, may stand still"
    )
    adopt.add_argument(
        "--log",
        action="append",
        metavar="PATH",
        help="of its output, with the tokens of sbatch (default: as SLURM has it)",
    )
    adopt.add_argument(
        "--restart-stalls", action="store_true", help="a stall may be restarted too, where the policy restarts stalls"
    )
    adopt.add_argument("--policy", type=_policy, metavar="NAME", help="the restart policy that its record requests")
    adopt.add_argument(
        "--signals", metavar="PACK", help="the signals that its log is searched for: a pack, or a signal file"
    )
    adopt.add_argument("--mark", action="store_true", help="write the run into the job's comment: it may be restarted")
    return parser


def _watch(watch: SlurmWatch, arguments: argparse.Namespace) -> int:
    stop = _stop_event()
    try:
        while not stop.is_set():
            began = time.monotonic()
            answered = watch.look(max(arguments.interval, 1.0))
            if arguments.once:
                return 0 if answered else 3
            stop.wait(max(0.0, arguments.interval - (time.monotonic() - began)))
    finally:
        watch.close()
    return 0


def _adopt(client: SlurmClient, configuration: JobsConfiguration, arguments: argparse.Namespace) -> int:
    job = find_job(client, arguments.job)
    configuration = replace(
        configuration,
        runs_dir=arguments.runs_dir or configuration.runs_dir,
        mark=arguments.mark or configuration.mark,
    )
    rule = _with_options(configuration.rule_of(job) or JobRule(), arguments)
    adopted = AdoptedJob(client, configuration, job, rule, arguments.run_id)
    stop = _stop_event()
    try:
        while not stop.is_set():
            began = time.monotonic()
            if (status := adopted.look(arguments.interval)) is not None:
                print(escape_controls(adopted.ending))
                return status
            stop.wait(max(0.0, arguments.interval - (time.monotonic() - began)))
    finally:
        adopted.close()
    return 0


def _with_options(rule: JobRule, arguments: argparse.Namespace) -> JobRule:
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


def _jobs(client: SlurmClient, configuration: JobsConfiguration) -> int:
    for job in client.jobs():
        if isinstance(job, UnreadableRecord):
            print(f"unreadable: {escape_controls(job.problem)}", file=sys.stderr)
            continue
        rule = configuration.rule_of(job)
        if rule is None or job.target is None:
            continue
        try:
            run_id = run_id_of(job, rule)
        except InvalidRunId as error:
            print(escape_controls(f"{job.queue_id}: {error}"), file=sys.stderr)
            continue
        logs = " ".join(job_logs(job, rule))
        print(escape_controls("  ".join((job.queue_id, job.state, run_id or "-", logs or "-"))))
    return 0


def _stop_event() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _policy(text: str) -> str:
    try:
        return policy_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}, expected {error}") from None
