"""The command `trainwarden-remediator canary`: keeps the canary's job, or is that job."""

from __future__ import annotations

import argparse

from trainwarden.service_log import log_to_stderr
from trainwarden_remediator.config import duration_of
from trainwarden_remediator.errors import ConfigError

_INTERRUPTED = 130


def add_canary_flags(command: argparse.ArgumentParser) -> None:
    """Add the command's own flags; those before it are the service's."""
    command.epilog = "before it: --driver=slurm and --runs-dir, and where needed --state-dir and --slurm-bin-dir"
    command.add_argument("--every", default="6h", metavar="DURATION", help="between two breaks, default %(default)s")
    command.add_argument(
        "--resubmit-after",
        default="1h",
        metavar="DURATION",
        help="how long a job that has failed is left to the remediator, default %(default)s",
    )
    command.add_argument(
        "--step-interval", default="10s", metavar="DURATION", help="between two of its steps, default %(default)s"
    )
    command.add_argument(
        "--sbatch-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option of sbatch for its job, such as --sbatch-option=--partition=cpu; repeatable",
    )
    command.add_argument(
        "--train", action="store_true", help="be the job itself: for SLURM, or below trainwarden up on one machine"
    )


def keep_canary(arguments: argparse.Namespace) -> int:
    """Keep the job until the process is ended; return the exit status."""
    # Each command reads the flags above, and none but this one needs these.
    from trainwarden.clients.slurm.client import CommandsMissing, SlurmClient, find_commands  # noqa: PLC0415
    from trainwarden_remediator.canary_job.canary_job import POLICY, RUN_ID  # noqa: PLC0415
    from trainwarden_remediator.canary_job.keeper import SlurmCanary, command_of_training, keep  # noqa: PLC0415
    from trainwarden_remediator.canary_job.training import train  # noqa: PLC0415

    every, step_seconds, resubmit_after, timeout = (
        duration_of(f"--{flag}", getattr(arguments, flag.replace("-", "_")))
        for flag in ("every", "step-interval", "resubmit-after", "slurm-timeout")
    )
    runs_dir = None if arguments.runs_dir is None else arguments.runs_dir.absolute()
    if arguments.train:
        train(runs_dir, every, step_seconds)
    if runs_dir is None or not runs_dir.is_dir():
        given = "missing" if runs_dir is None else f"{runs_dir}: no folder"
        raise ConfigError([f"--runs-dir: {given}; expected that of the run records, mounted on the job's node, too"])
    if arguments.driver != ["slurm"]:
        one_machine = f"trainwarden up --run-id {RUN_ID} --policy {POLICY} -- trainwarden-remediator canary --train"
        raise ConfigError([f"--driver: expected slurm; on one machine: {one_machine}"])
    log_to_stderr(arguments.log_level.upper(), "%(asctime)s %(levelname)s %(message)s", arguments.log_format)
    try:
        commands = find_commands(arguments.slurm_bin_dir, ("squeue", "sbatch", "scancel"))
    except CommandsMissing as error:
        raise ConfigError([f"--driver slurm: {error}; see --slurm-bin-dir"]) from None
    jobs = SlurmCanary(
        SlurmClient(commands, timeout),
        command_of_training(runs_dir, every, step_seconds),
        runs_dir / RUN_ID,
        arguments.sbatch_option,
    )
    try:
        keep(jobs, arguments.state_dir / "canary", resubmit_after)
    except KeyboardInterrupt:
        return _INTERRUPTED
