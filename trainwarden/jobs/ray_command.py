"""`trainwarden ray`: watch jobs that use no library, adopt one that runs, list what would be watched."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from trainwarden.clients.http import CONNECTION
from trainwarden.clients.ray import RayError
from trainwarden.clients.ray_jobs import RayJobs, SubmittedJob, usable_id
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.jobs.adopted_job import AdoptedJob
from trainwarden.jobs.configuration import JobsConfiguration, ray_configuration, read_configuration
from trainwarden.jobs.ray_run import rule_paths, run_id_of, session_log
from trainwarden.jobs.ray_watch import SESSION, RayWatch
from trainwarden.jobs.watch_command import add_commands, begin_service, follow_job, watch_jobs, with_options
from trainwarden.ray.head import open_head
from trainwarden.record.folder import runs_dir
from trainwarden.redaction import plain
from trainwarden.service_log import escape_controls

_ADDRESS = "http://127.0.0.1:8265"
_BY_API = "by Ray's API"


def main(argv: list[str]) -> int:
    """Watch, adopt or list; return 0, 1 if the job failed, 2 for misuse, 3 if Ray does not say how it ended."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    try:
        configuration = (
            read_configuration(arguments.config, "ray") if arguments.config else ray_configuration(runs_dir())
        )
        jobs = _jobs_of(arguments)
        if arguments.command == "jobs":
            return _jobs(jobs, configuration, arguments.ray_session_dir)
        begin_service(arguments)
        if arguments.command == "adopt":
            return _adopt(jobs, configuration, arguments)
        return watch_jobs(RayWatch(jobs, configuration, session=arguments.ray_session_dir), arguments)
    except UsageError as error:
        print(f"trainwarden ray: {plain(str(error))}", file=sys.stderr)
        return 2
    except RayError as error:
        head = arguments.ray_head_pod or arguments.ray_address
        hint = "; see --ray-address and --ray-head-pod" if error.reason == CONNECTION else ""
        print(f"trainwarden ray: {plain(f'{head}: {error}')}{hint}", file=sys.stderr)
        return 3


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = CommandLine(
        prog="trainwarden ray",
        description="Make runs of submitted Ray jobs that use no library: their records, from Ray and their logs.",
        epilog="exit status: 0 it was stopped, or the job succeeded; 1 the job failed or was cancelled; 2 misuse, a "
        "wrong configuration, or a job whose record is another's; 3 Ray gives no answer, or how the job ended is not "
        "known. The token is that of --ray-token-file, $RAY_AUTH_TOKEN or the file $RAY_AUTH_TOKEN_PATH.",
    )
    watch, adopt, jobs = add_commands(parser)
    for each in (watch, adopt, jobs):
        way = each.add_mutually_exclusive_group()
        way.add_argument("--ray-address", metavar="URL", default=_ADDRESS, help="Ray's dashboard (%(default)s)")
        way.add_argument("--ray-head-pod", metavar="POD", help="the head's pod or svc/NAME, reached by kubectl")
        each.add_argument("--ray-namespace", metavar="NAME", help="of the pod")
        each.add_argument("--ray-token-file", type=Path, metavar="FILE", help="the token that the dashboard requires")
        each.add_argument(
            "--ray-session-dir",
            type=Path,
            metavar="DIR",
            default=SESSION,
            help="the head's session folder, where it is on this machine (%(default)s)",
        )
    adopt.add_argument("job", metavar="JOB", help="a submission id, such as raysubmit_Cr1bGZqTkUmcvWkT")
    adopt.add_argument("--run-id", metavar="RUN", help="(default: that of its metadata, else the submission id)")
    adopt.add_argument("--log", action="append", metavar="PATH", help="of its output (default: that of its entrypoint)")
    return parser


def _jobs_of(arguments: argparse.Namespace) -> RayJobs:
    try:
        return open_head(
            arguments.ray_head_pod or arguments.ray_address, arguments.ray_namespace, arguments.ray_token_file
        ).jobs
    except ValueError as error:
        raise UsageError(str(error)) from None


def _adopt(jobs: RayJobs, configuration: JobsConfiguration, arguments: argparse.Namespace) -> int:
    job = _find_job(jobs, arguments.job)
    configuration = replace(configuration, runs_dir=arguments.runs_dir or configuration.runs_dir)
    rule = with_options(configuration.rule_of(job) or configuration.default, arguments)
    try:
        name = check_run_id(arguments.run_id) if arguments.run_id else run_id_of(job, rule)
    except InvalidRunId as error:
        raise UsageError(str(error)) from None
    if job.job.run_id not in ("", name):
        raise UsageError(f"job {arguments.job} is marked with run {job.job.run_id}, expected that as --run-id")
    alone = replace(configuration, rules=(), marked=False)
    watch = RayWatch(jobs, alone, [arguments.job], replace(rule, run_id=name), arguments.ray_session_dir)
    return follow_job(AdoptedJob(watch, arguments.job), arguments)


def _find_job(jobs: RayJobs, wanted: str) -> SubmittedJob:
    if not usable_id(wanted):
        raise UsageError(f"{wanted[:40]!r} is no submission id, expected one such as raysubmit_Cr1bGZqTkUmcvWkT")
    job = jobs.submission(wanted)
    if job is None:
        raise UsageError(f"Ray has no job {wanted}")
    if job.job.job_id == job.job.submission_id:
        raise UsageError(f"job {wanted} was not submitted: Ray has neither its output nor its exit code")
    return job


def _jobs(jobs: RayJobs, configuration: JobsConfiguration, session: Path) -> int:
    version, found = jobs.all()
    for name, job in found.items():
        rule = configuration.rule_of(job)
        if rule is None or name == job.job.job_id or not usable_id(name):
            continue
        try:
            run_id = run_id_of(job, rule)
        except InvalidRunId as error:
            print(escape_controls(f"{name}: {error}"), file=sys.stderr)
            continue
        file = session_log(session, version.session, name)
        logs = " ".join(rule_paths(job, rule.logs)) or file or _BY_API
        print(escape_controls("  ".join((name, job.job.state or "-", run_id, logs))))
    return 0
