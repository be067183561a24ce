"""`trainwarden slurm`: watch jobs that use no library, adopt one that runs, list what would be watched."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from trainwarden.capabilities import lower_read_search
from trainwarden.clients.slurm.client import SlurmClient, SlurmError, UnreadableRecord
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId
from trainwarden.jobs.adopted_job import adopt_slurm_job, find_job, job_client
from trainwarden.jobs.configuration import JobRule, JobsConfiguration, read_configuration
from trainwarden.jobs.slurm_run import job_logs, run_id_of
from trainwarden.jobs.slurm_watch import SlurmWatch
from trainwarden.jobs.watch_command import add_commands, begin_service, follow_job, watch_jobs, with_options
from trainwarden.record.folder import runs_dir
from trainwarden.redaction import plain
from trainwarden.service_log import escape_controls


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
        begin_service(arguments)
        if arguments.command == "adopt":
            return _adopt(client, configuration, arguments)
        return watch_jobs(SlurmWatch(client, configuration), arguments)
    except UsageError as error:
        print(f"trainwarden slurm: {plain(str(error))}", file=sys.stderr)
        return 2
    except SlurmError as error:
        print(f"trainwarden slurm: {error.reason}: {plain(error.message)}", file=sys.stderr)
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
    watch, adopt, jobs = add_commands(parser)
    for each in (watch, adopt, jobs):
        each.add_argument(
            "--slurm-bin-dir", type=Path, metavar="DIR", help="of squeue and scontrol (default: those on PATH)"
        )
    adopt.add_argument("job", metavar="JOB", help="a job's id, such as 4711 or 4711_3")
    adopt.add_argument("--run-id", metavar="RUN", help="(default: that of its mark, else NAME-JOB)")
    adopt.add_argument(
        "--log",
        action="append",
        metavar="PATH",
        help="of its output, with the tokens of sbatch (default: as SLURM has it)",
    )
    adopt.add_argument("--mark", action="store_true", help="write the run into the job's comment: it may be restarted")
    return parser


def _adopt(client: SlurmClient, configuration: JobsConfiguration, arguments: argparse.Namespace) -> int:
    job = find_job(client, arguments.job)
    configuration = replace(
        configuration,
        runs_dir=arguments.runs_dir or configuration.runs_dir,
        mark=arguments.mark or configuration.mark,
    )
    rule = with_options(configuration.rule_of(job) or JobRule(), arguments)
    return follow_job(adopt_slurm_job(client, configuration, job, rule, arguments.run_id), arguments)


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
