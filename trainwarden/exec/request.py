"""The options of `trainwarden exec`, checked."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.identity import AttemptKey, InvalidAttemptKey, InvalidRunId, current_attempt_key, rank
from trainwarden.record.folder import run_folder, runs_dir
from trainwarden.record.thresholds import (
    STALL_VARIABLE,
    InvalidThreshold,
    Thresholds,
    choose,
    given_stall,
    stall_budgets,
)


class InvalidExecRequest(Exception):
    """An option or a variable is unusable; the message names it, its value and what was expected."""


@dataclass(frozen=True)
class ExecRequest:
    """A command to run; `environment` is the command's, `given` are the stall budgets that were given, by phase."""

    command: Sequence[str]
    folder: Path
    key: AttemptKey
    rank: int
    thresholds: Thresholds
    given: Mapping[str, float]
    environment: Mapping[str, str]
    log: Path | None
    grace_seconds: float


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = CommandLine(
        prog="trainwarden exec",
        usage="trainwarden exec [options] -- COMMAND [ARGUMENT ...]",
        description="Runs COMMAND, keeps its output, and writes into the record of its run what COMMAND does not write "
        "itself: signs of life, and how it ended. Ends with COMMAND's own status.",
    )
    parser.add_argument(
        "--run-id", help="name of the run (default: $TRAINWARDEN_RUN_ID, else made from the attempt's key)"
    )
    parser.add_argument("--runs-dir", help="folder of run records (default: $TRAINWARDEN_RUNS_DIR, as everywhere)")
    parser.add_argument("--log", help="a file to append the output to, beside the log in the record")
    parser.add_argument(
        "--stall-seconds",
        metavar="S[,PHASE=S]",
        help="how long a training may make no step, also of phases, as in 300,init=900 (default: its own, else 600)",
    )
    parser.add_argument(
        "--grace-seconds",
        type=_grace,
        default=5.0,
        help="how long, after COMMAND's end, what it left running may still print (default: %(default)s)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def to_request(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> ExecRequest:
    """Return the request that the options make.

    Raises:
        InvalidExecRequest: a value is unusable.
    """
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise InvalidExecRequest("no command was given; expected: trainwarden exec [options] -- COMMAND [ARGUMENT ...]")
    stall = {} if options.stall_seconds is None else {STALL_VARIABLE: options.stall_seconds}
    try:
        stall_budgets(options.stall_seconds or "600", "--stall-seconds")
        thresholds = choose(None, {**environ, **stall})
        given = given_stall({**environ, **stall})
    except InvalidThreshold as error:
        raise InvalidExecRequest(str(error)) from None
    try:
        key = current_attempt_key(environ)
    except InvalidAttemptKey as error:
        raise InvalidExecRequest(str(error)) from None
    default = f"{key.scheduler}-{key.job_id}".replace("+", "-")
    run_id = options.run_id if options.run_id is not None else environ.get("TRAINWARDEN_RUN_ID") or default
    runs = Path(options.runs_dir).absolute() if options.runs_dir else runs_dir(environ)
    try:
        folder = run_folder(run_id, runs)
    except InvalidRunId as error:
        source = "--run-id" if options.run_id is not None else "TRAINWARDEN_RUN_ID"
        raise InvalidExecRequest(f"{source}: {error}") from None
    names = {"TRAINWARDEN_RUN_ID": run_id, "TRAINWARDEN_RUNS_DIR": str(runs), "TRAINWARDEN_ATTEMPT_KEY": str(key)}
    return ExecRequest(
        command=command,
        folder=folder,
        key=key,
        rank=rank(environ),
        thresholds=thresholds,
        given=given,
        # Output in a buffer cannot be seen live, and is lost where the command dies.
        environment={"PYTHONUNBUFFERED": "1", **environ, **stall, **names},
        log=Path(options.log) if options.log else None,
        grace_seconds=options.grace_seconds,
    )


def _grace(text: str) -> float:
    return 0.0 if text == "0" else duration_seconds(text)
