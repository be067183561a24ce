"""The command `trainwarden-remediator`.

Each of its commands loads what it needs: the database alone takes as long as all the rest of a check of a policy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import trainwarden
from trainwarden.clients.process import keep_child_status
from trainwarden.command_line import CommandLine, discard_output, valid_run_id
from trainwarden.errors import UsageError
from trainwarden.service_log import log_to_stderr
from trainwarden_remediator.canary_job.command import add_canary_flags, keep_canary
from trainwarden_remediator.commands.ray_register import add_register_flags, register
from trainwarden_remediator.config import RemediatorSettings, duration_of, settings_from, usable_settings
from trainwarden_remediator.errors import ConfigError, RemediatorError
from trainwarden_remediator.flags import USUAL, add_service_flags
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.policies.policy import load_policy
from trainwarden_remediator.policies.policy_file import FAILURE_MODES

PROGRAM = "trainwarden-remediator"
_UNPROTECTED = "--webhook-token-file: missing; there is no mode without a token"
_MISUSE = 2
_LONGEST_FREEZE_SECONDS = 365 * 86400.0
_Commands: TypeAlias = "argparse._SubParsersAction[CommandLine]"  # noqa: SLF001  # has no public name
# Of a command; where it is given before the command, or not at all, that of the service counts.
_STATE_DIR: dict[str, Any] = {
    "type": Path,
    "default": argparse.SUPPRESS,
    "metavar": "DIR",
    "help": "the remediator's state folder, default that of the service",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = CommandLine(
        prog=PROGRAM,
        description="Takes alerts from Alertmanager, and restarts once where a policy allows it.",
        allow_abbrev=False,
        usual=USUAL,
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {trainwarden.__version__}")
    top.set_defaults(run=_serve)
    add_service_flags(top)
    known = top.add_subparsers(dest="command", metavar="COMMAND", title="commands, instead of serving")
    _file_commands(known)
    _record_commands(known)
    _scheduler_commands(known)
    return top


def _file_commands(known: _Commands) -> None:
    check = known.add_parser("check-policy", help="check a policy file; status 0 if it is right, 2 if not")
    check.add_argument("file", metavar="FILE", help="a policy file, or the name of a shipped one")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=_check_policy)
    known.add_parser(
        "check-config", help="check all files that the flags before it name; status 0 if they are right, 2 if not"
    ).set_defaults(run=_check_config)
    again = known.add_parser("replay", help="show what a policy would have done with failures on record, or with a log")
    source = again.add_mutually_exclusive_group()
    source.add_argument("--state-dir", **_STATE_DIR)
    source.add_argument("--log", metavar="FILE", help="the log of a failed run, as trainwarden scan reads it")
    again.add_argument("--policy", dest="of_policy", required=True, metavar="NAME|FILE", help="the policy")
    again.add_argument("--run-id", metavar="RUN", help="of a database: only this run")
    again.add_argument("--mode", choices=FAILURE_MODES, default="crash", help="of a log, default %(default)s")
    again.add_argument("--json", action="store_true", help="print JSON")
    again.set_defaults(run=_replay)


def _record_commands(known: _Commands) -> None:
    shown = known.add_parser("decisions", help="show what was decided and done, beside a running remediator")
    _on_database(shown)
    shown.add_argument("--run-id", metavar="RUN", help="only this run")
    shown.add_argument("--format", choices=("text", "json"), default="text", help="default %(default)s")
    explained = known.add_parser(
        "explain", help="show what was decided and why, and what comes next; status 1 if nothing is on record"
    )
    _on_database(explained)
    explained.add_argument("about", metavar="RUN|ALERT|INCIDENT", help="a run, the name of an alert, or an incident")
    ack = known.add_parser("ack", help="end the pages of a run that you have taken over; status 1 if none pages")
    _on_database(ack)
    which = ack.add_mutually_exclusive_group(required=True)
    which.add_argument("--run-id", type=valid_run_id, metavar="RUN", help="all incidents of a run")
    which.add_argument("incident", nargs="?", metavar="INCIDENT", help="this one; the first 4 letters may do")
    stopped = known.add_parser("freeze", help="let nothing be restarted, of a run or at all, from now on")
    _on_database(stopped)
    _which(stopped)
    stopped.add_argument("--reason", default="", metavar="TEXT", help="why, for the log and for others")
    stopped.add_argument("--for", dest="seconds", metavar="DURATION", help="how long; default until unfreeze")
    allowed = known.add_parser("unfreeze", help="end what freeze began; status 1 if nothing was frozen")
    _on_database(allowed)
    _which(allowed)
    adopted = known.add_parser("adopt", help="let a run be restarted of which the database lacks restarts")
    _on_database(adopted)
    adopted.add_argument("--run-id", type=valid_run_id, required=True, metavar="RUN", help="the run")
    score = known.add_parser("score", help="show what policies would have done against what people did")
    _on_database(score)
    score.add_argument("--policy", dest="of_policy", metavar="NAME", help="only this policy")
    score.add_argument("--since", metavar="DURATION", help="only decisions of so long ago at most, such as 30d")
    for name, text in (("approve", "let a restart begin that waits for it"), ("veto", "let a restart not be made")):
        answered = known.add_parser(name, help=f"{text}; status 1 if it comes too late")
        _on_database(answered)
        answered.add_argument("incident", metavar="INCIDENT", help="its id, of which the first 4 letters may do")
    ended = known.add_parser("resume", help="end a storm: restart the runs that wait; status 1 if there is none")
    _on_database(ended)
    audited = known.add_parser("audit", help="verify that the log of decisions is as it was written")
    steps = audited.add_subparsers(dest="step", metavar="STEP", required=True)
    verify = steps.add_parser(
        "verify", help="name the first row that was changed or is missing; status 1 if there is one"
    )
    _on_database(verify)
    verify.add_argument("--expect", metavar="NUMBER:HASH", help="a row that was noted elsewhere, as in a message")


def _scheduler_commands(known: _Commands) -> None:
    resuming = known.add_parser(
        "undrain",
        help="resume nodes that the remediator has drained, and no others; give the flags of the service before it",
    )
    resuming.add_argument("nodes", nargs="+", metavar="NODE")
    resuming.set_defaults(run=_undrain)
    of_ray = known.add_parser("ray", help="prepare restarts of Ray jobs; give the flags of the service before it")
    ray_steps = of_ray.add_subparsers(dest="step", metavar="STEP", required=True)
    noted = ray_steps.add_parser(
        "register", help="note what Ray does not return of a job, and its next start needs, in --ray-template-dir"
    )
    add_register_flags(noted)
    noted.set_defaults(run=_register)
    doctor = known.add_parser(
        "doctor",
        help="show what SLURM lets this user do, and whether each job could be brought back; give the flags of the "
        "service before it",
    )
    doctor.add_argument("--format", choices=("text", "json"), default="text", help="default %(default)s")
    doctor.set_defaults(run=_doctor)
    canary = known.add_parser("canary", help="keep a job that breaks on schedule, for --canary to heal")
    add_canary_flags(canary)
    canary.set_defaults(run=keep_canary)


def _on_database(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state-dir", **_STATE_DIR)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_on_record)


def _which(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--run-id", type=valid_run_id, metavar="RUN", help="this run")
    which.add_argument("--all", action="store_true", help="all runs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = parser().parse_args(argv)
    keep_child_status()
    try:
        status: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        return discard_output()
    except (RemediatorError, UsageError) as error:
        for problem in error.problems if isinstance(error, ConfigError) else (error,):
            _complain(problem)
        return _MISUSE


def _complain(problem: object) -> None:
    print(f"{PROGRAM}: {clean(problem, 4000)}", file=sys.stderr)


def _check_policy(arguments: argparse.Namespace) -> int:
    policy = load_policy(arguments.file)
    for warning in policy.warnings():
        _complain(f"warning: {warning}")
    if arguments.json:
        rules = {
            mode: {"class_name": rule.class_name, "max_retries": rule.max_retries}
            for mode, rule in policy.rules.items()
        }
        print(json.dumps({"policy": policy.name, "mode_of_action": policy.mode_of_action, "rules": rules}))
        return 0
    for mode, rule in policy.rules.items():
        limit = "" if rule.class_name == "NoRestartPolicy" else f", at most {rule.max_retries}"
        print(f"{mode}: {rule.class_name}{limit}")
    return 0


def _check_config(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.commands.check_config import check_config  # noqa: PLC0415  # see above

    settings, problems = usable_settings(arguments, parser().parse_args([]))
    checked = check_config(settings)
    problems += checked.problems
    if arguments.webhook_token_file is None:
        problems = [_UNPROTECTED, *(each for each in problems if not each.startswith("--webhook-token-file:"))]
    for problem in problems:
        _complain(problem)
    for warning in checked.warnings:
        _complain(f"warning: {warning}")
    print(checked.as_text(), end="")
    return _MISUSE if problems else 0


def _replay(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.commands import database_commands as commands  # noqa: PLC0415  # see above

    policy, as_data = load_policy(arguments.of_policy), arguments.json
    if arguments.log is not None:
        return commands.replay_log_file(arguments.log, policy, arguments.mode, as_data=as_data)
    return commands.replay_record(arguments.state_dir, policy, arguments.run_id, as_data=as_data)


def _on_record(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.commands import database_commands as commands  # noqa: PLC0415  # see above
    from trainwarden_remediator.incidents.price import APPROVED, VETOED  # noqa: PLC0415  # see above

    state_dir, as_data = arguments.state_dir, arguments.json
    if arguments.command == "decisions":
        return commands.show_decisions(state_dir, arguments.run_id, as_data=as_data or arguments.format == "json")
    if arguments.command == "explain":
        return commands.explain(state_dir, arguments.about, as_data=as_data)
    if arguments.command == "ack":
        return commands.take_over(state_dir, arguments.run_id, arguments.incident, as_data=as_data)
    if arguments.command == "adopt":
        return commands.accept(state_dir, arguments.run_id, as_data=as_data)
    if arguments.command == "score":
        since = None if arguments.since is None else duration_of("--since", arguments.since)
        return commands.show_score(state_dir, arguments.of_policy, since, as_data=as_data)
    if arguments.command in ("approve", "veto"):
        answer = APPROVED if arguments.command == "approve" else VETOED
        return commands.answer_restart(state_dir, arguments.incident, answer, as_data=as_data)
    if arguments.command == "freeze":
        seconds = (
            None if arguments.seconds is None else duration_of("--for", arguments.seconds, _LONGEST_FREEZE_SECONDS)
        )
        run_id = arguments.run_id or ""
        return commands.stop_restarts(state_dir, run_id, arguments.reason, seconds, as_data=as_data)
    if arguments.command == "unfreeze":
        return commands.allow_restarts(state_dir, arguments.run_id or "", as_data=as_data)
    if arguments.command == "resume":
        return commands.end_storms(state_dir, as_data=as_data)
    return commands.verify_audit(state_dir, arguments.expect, as_data=as_data)


def _doctor(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.commands.doctor import examine  # noqa: PLC0415  # see above

    return examine(_settings_of_no_service(arguments), arguments.format)


def _register(arguments: argparse.Namespace) -> int:
    if arguments.ray_template_dir is not None:
        with suppress(OSError):  # the check of the flag names it
            arguments.ray_template_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return register(_settings_of_no_service(arguments), arguments)


def _undrain(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.act.drains import undrain  # noqa: PLC0415  # see above
    from trainwarden_remediator.drivers.slurm_access import slurm_client  # noqa: PLC0415  # see above

    settings = _settings_of_no_service(arguments)
    problems = undrain(slurm_client(settings.slurm_bin_dir, settings.slurm_timeout), arguments.nodes)
    for problem in problems:
        _complain(problem)
    return 1 if problems else 0


def _settings_of_no_service(arguments: argparse.Namespace) -> RemediatorSettings:
    """Return the settings of a command that receives nothing, and so needs no token."""
    arguments.webhook_token_file = arguments.webhook_token_file or Path(os.devnull)
    return settings_from(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator import app  # noqa: PLC0415  # see above

    if arguments.webhook_token_file is None:
        raise ConfigError([_UNPROTECTED])
    log_to_stderr(arguments.log_level.upper(), "%(asctime)s %(levelname)s %(message)s", arguments.log_format)
    settings = settings_from(arguments)
    stop = threading.Event()
    received: list[int] = []
    # Wait for the signals instead of handling them: a handler that interrupts the event's own code would deadlock.
    # Block them before any other thread starts, for every thread inherits the mask.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    hangup = threading.Event()

    def listen() -> None:
        while (got := signal.sigwait(signals)) == signal.SIGHUP:
            hangup.set()
        received.append(got)
        stop.set()

    threading.Thread(target=listen, name="signals", daemon=True).start()
    try:
        app.serve(settings, stop, hangup)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 130 if received[:1] == [signal.SIGINT] else 0
