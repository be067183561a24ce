"""What `trainwarden exec` is asked for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.identity import AttemptKey, InvalidAttemptKey, InvalidRunId, current_attempt_key, rank
from trainwarden.record.folder import run_folder, runs_dir
from trainwarden.record.thresholds import InvalidThreshold, Thresholds, choose


class Misuse(Exception):
    """Something that was asked for cannot be; the message names the option, the value and what was expected."""


@dataclass(frozen=True)
class Request:
    """A command to wrap; `environment` is the command's own."""

    command: Sequence[str]
    folder: Path
    key: AttemptKey
    rank: int
    thresholds: Thresholds
    environment: Mapping[str, str]
    log: Path | None
    grace_seconds: float


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="trainwarden exec",
        usage="trainwarden exec [options] -- COMMAND [ARGUMENT ...]",
        description="Runs COMMAND, keeps its output, and writes what COMMAND does not say of its run itself: signs of "
        "life, and how it ended. Ends with COMMAND's own status.",
    )
    parser.add_argument(
        "--run-id", help="name of the run (default: $TRAINWARDEN_RUN_ID, else made from the attempt's key)"
    )
    parser.add_argument("--runs-dir", help="folder of run records (default: $TRAINWARDEN_RUNS_DIR, as everywhere)")
    parser.add_argument("--log", help="a file to append the output to, beside the log in the record")
    parser.add_argument(
        "--stall-seconds", help="how long a training that reports its steps may make none (default: its own, else 600)"
    )
    parser.add_argument(
        "--grace-seconds",
        type=float,
        default=5.0,
        help="how long, after COMMAND's end, what it left running may still print (default: %(default)s)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def to_request(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Request:
    """What the options ask for, checked. Raises Misuse."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise Misuse("no command was given; expected: trainwarden exec [options] -- COMMAND [ARGUMENT ...]")
    if not 0 <= options.grace_seconds < 1e6:
        raise Misuse(f"--grace-seconds {options.grace_seconds}: 0 or more seconds were expected")
    stall = {} if options.stall_seconds is None else {"TRAINWARDEN_STALL_SECONDS": options.stall_seconds}
    try:
        thresholds = choose(None, {**environ, **stall})
    except InvalidThreshold as error:
        option = "--stall-seconds: " if stall else ""
        raise Misuse(f"{option}{error}") from None
    try:
        key = current_attempt_key(environ)
    except InvalidAttemptKey as error:
        raise Misuse(str(error)) from None
    made = f"{key.scheduler}-{key.job_id}".replace("+", "-")
    run_id = options.run_id if options.run_id is not None else environ.get("TRAINWARDEN_RUN_ID") or made
    runs = Path(options.runs_dir).absolute() if options.runs_dir else runs_dir(environ)
    try:
        folder = run_folder(run_id, runs)
    except InvalidRunId as error:
        raise Misuse(f"--run-id: {error}" if options.run_id is not None else f"TRAINWARDEN_RUN_ID: {error}") from None
    names = {"TRAINWARDEN_RUN_ID": run_id, "TRAINWARDEN_RUNS_DIR": str(runs), "TRAINWARDEN_ATTEMPT_KEY": str(key)}
    return Request(
        command=command,
        folder=folder,
        key=key,
        rank=rank(environ),
        thresholds=thresholds,
        # Output that waits in a buffer cannot be seen live, and is lost where the command dies.
        environment={"PYTHONUNBUFFERED": "1", **environ, **stall, **names},
        log=Path(options.log) if options.log else None,
        grace_seconds=options.grace_seconds,
    )
