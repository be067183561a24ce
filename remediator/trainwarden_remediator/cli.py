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
from pathlib import Path
from typing import Any

import trainwarden
from trainwarden.clients.process import keep_child_status
from trainwarden.command_line import CommandLine
from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.service_log import FORMATS, log_to_stderr
from trainwarden_remediator.canary_job.command import add_flags, keep_canary
from trainwarden_remediator.commands.ray_register import add_register_flags, register
from trainwarden_remediator.config import DEFAULT_ALERTMANAGER, default_state_dir, settings_from, usable_settings
from trainwarden_remediator.errors import ConfigError, RemediatorError
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.policies.modes import MODES, OPT_IN
from trainwarden_remediator.policies.policy import DEFAULT_POLICY, load_policy, shipped
from trainwarden_remediator.policies.policy_file import FAILURE_MODES

PROGRAM = "trainwarden-remediator"
_UNPROTECTED = "--webhook-token-file: missing; there is no mode without a token"
_MISUSE = 2
# What `--help` shows.
_USUAL = ("--webhook-token-file", "--policy", "--mode-of-action", "--driver")


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
        usual=_USUAL,
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {trainwarden.__version__}")
    _serving(top)
    _drivers(top)
    _messages(top)
    _timing(top)
    known = top.add_subparsers(dest="command", metavar="COMMAND", title="commands, instead of serving")
    check = known.add_parser("check-policy", help="check a policy file; status 0 if it is right, 2 if not")
    check.add_argument("file", metavar="FILE", help="a policy file, or the name of a shipped one")
    check.add_argument("--json", action="store_true", help="print JSON")
    known.add_parser(
        "check-config", help="check all files that the flags before it name; status 0 if they are right, 2 if not"
    )
    again = known.add_parser("replay", help="show what a policy would have done with failures on record, or with a log")
    source = again.add_mutually_exclusive_group()
    source.add_argument("--state-dir", **_STATE_DIR)
    source.add_argument("--log", metavar="FILE", help="the log of a failed run, as trainwarden scan reads it")
    again.add_argument("--policy", dest="of_policy", required=True, metavar="NAME|FILE", help="the policy")
    again.add_argument("--run-id", metavar="RUN", help="of a database: only this run")
    again.add_argument("--mode", choices=FAILURE_MODES, default="crash", help="of a log, default %(default)s")
    again.add_argument("--json", action="store_true", help="print JSON")
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
    which.add_argument("--run-id", type=_run_id, metavar="RUN", help="all incidents of a run")
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
    adopted.add_argument("--run-id", type=_run_id, required=True, metavar="RUN", help="the run")
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
    resuming = known.add_parser(
        "undrain",
        help="resume nodes that the remediator has drained, and no others; give the flags of the service before it",
    )
    resuming.add_argument("nodes", nargs="+", metavar="NODE")
    of_ray = known.add_parser("ray", help="prepare restarts of Ray jobs; give the flags of the service before it")
    ray_steps = of_ray.add_subparsers(dest="step", metavar="STEP", required=True)
    noted = ray_steps.add_parser(
        "register", help="note what Ray does not return of a job, and its next start needs, in --ray-template-dir"
    )
    add_register_flags(noted)
    doctor = known.add_parser(
        "doctor",
        help="show what SLURM lets this user do, and whether each job could be brought back; give the flags of the "
        "service before it",
    )
    doctor.add_argument("--format", choices=("text", "json"), default="text", help="default %(default)s")
    add_flags(known.add_parser("canary", help="keep a job that breaks on schedule, for --canary to heal"))
    return top


def _on_database(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state-dir", **_STATE_DIR)
    command.add_argument("--json", action="store_true", help="print JSON")


def _which(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--run-id", type=_run_id, metavar="RUN", help="this run")
    which.add_argument("--all", action="store_true", help="all runs")


def _run_id(text: str) -> str:
    """Return the id of a run: an empty one, as of a variable that is not set, must not stand for all runs."""
    try:
        return check_run_id(text)
    except InvalidRunId as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _serving(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("serving")
    group.add_argument(
        "--web.listen-address",
        dest="listen_address",
        default="127.0.0.1:9746",
        metavar="HOST:PORT",
        help="where to listen, default %(default)s; port 0 takes a free one",
    )
    group.add_argument(
        "--web.port-file",
        dest="port_file",
        type=Path,
        metavar="FILE",
        help="a file that holds the address really bound, as HOST:PORT, while the remediator runs",
    )
    group.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, client certificates and users, in exporter-toolkit's format; read again when it changes",
    )
    group.add_argument(
        "--webhook-token-file",
        type=Path,
        metavar="FILE",
        help="the bearer token that the webhook and the API check, read again when it changes; required",
    )
    group.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(dict(os.environ)),
        metavar="DIR",
        help="the database, on a local file system, default %(default)s",
    )
    group.add_argument(
        "--webhook-user",
        action="append",
        default=[],
        metavar="NAME",
        help="a user of --web.config.file who may call the webhook and the API with a password instead; repeatable",
    )
    group.add_argument(
        "--alertmanager-url",
        action="append",
        metavar="URL",
        help=f"default {DEFAULT_ALERTMANAGER}; repeatable, for several that stand for each other",
    )
    group.add_argument("--prometheus-url", default="http://127.0.0.1:9090", metavar="URL", help="default %(default)s")
    for name, tool in (("alertmanager", "amtool"), ("prometheus", "promtool")):
        group.add_argument(
            f"--{name}-http-config-file",
            type=Path,
            metavar="FILE",
            help=f"credentials and certificates for it, in the format of {tool} --http.config.file",
        )
    group.add_argument(
        "--cluster",
        default="",
        metavar="NAME",
        help="the value of the label cluster whose alerts are taken; default: alerts of every cluster",
    )
    group.add_argument(
        "--policy",
        default=DEFAULT_POLICY,
        metavar="NAME|FILE",
        help=f"a policy file, or one of {', '.join(shipped())}; default %(default)s",
    )
    group.add_argument(
        "--policy-dir",
        type=Path,
        metavar="DIR",
        help="policy files that a run may select by name without .yaml, beside the shipped ones",
    )
    group.add_argument(
        "--run-policy",
        action="append",
        default=[],
        metavar="GLOB=NAME",
        help="the policy of the runs whose id matches, whatever their record selects; repeatable, the first counts",
    )
    group.add_argument(
        "--mode-of-action",
        choices=(OPT_IN, *MODES),
        default=OPT_IN,
        help="whether decisions are carried out: opt-in, the default, for runs that the operator or their own record "
        "gives a policy by name; observe for none, canary for a part of the runs, act for all",
    )
    group.add_argument(
        "--canary",
        action="store_true",
        help="a canary is kept in this cluster (the command canary): heal it in every mode, and report for how long it "
        "was not healed",
    )
    group.add_argument(
        "--canary-user",
        default="",
        metavar="USER",
        help="the user of the canary's job, default the remediator's own: no other job is taken for the canary",
    )
    group.add_argument(
        "--runs-dir",
        type=Path,
        metavar="DIR",
        help="the run records, if the remediator can read them: completed attempts are left alone, restarts announced",
    )
    group.add_argument(
        "--log.level",
        dest="log_level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="default %(default)s",
    )
    group.add_argument(
        "--log.format", dest="log_format", choices=FORMATS, default="text", help="of its log, default %(default)s"
    )


def _drivers(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("schedulers")
    group.add_argument(
        "--driver",
        action="append",
        default=[],
        choices=("local", "slurm", "ray"),
        help="a scheduler to act on, repeatable; without any, decisions are only recorded",
    )
    group.add_argument("--local-launcher-url", metavar="URL", help="where the local launcher listens")
    group.add_argument("--local-launcher-token-file", type=Path, metavar="FILE", help="its bearer token")
    group.add_argument("--slurm-bin-dir", type=Path, metavar="DIR", help="where squeue and scontrol are, default PATH")
    group.add_argument(
        "--slurm-allow-user",
        action="append",
        default=[],
        metavar="NAME",
        help="act on this user's jobs too, repeatable; by default only on the remediator's own user's",
    )
    group.add_argument(
        "--ray-address",
        default="http://127.0.0.1:8265",
        metavar="URL",
        help="Ray's dashboard, default %(default)s; with --ray-head-pod as the pod sees it",
    )
    group.add_argument(
        "--ray-token-file",
        type=Path,
        metavar="FILE",
        help="the token that the dashboard requires, read for each request, default $RAY_AUTH_TOKEN",
    )
    group.add_argument("--ray-ca-file", type=Path, metavar="FILE", help="trusted instead of the system's certificates")
    group.add_argument(
        "--ray-template-dir",
        type=Path,
        metavar="DIR",
        help="what entrypoints reserve and copies of packages, by run; `ray register` writes it",
    )
    group.add_argument(
        "--ray-head-pod",
        metavar="POD",
        help="reach the dashboard through kubectl exec into this pod; svc/NAME and deploy/NAME mean a pod of theirs",
    )
    group.add_argument("--ray-namespace", metavar="NAME", help="namespace of the pod, default kubectl's")
    group.add_argument("--ray-container", metavar="NAME", help="container of the pod, default its first")
    group.add_argument("--ray-kubectl", default="kubectl", metavar="FILE", help="default %(default)s")
    group.add_argument(
        "--slurm-resubmit",
        action="store_true",
        help="submit jobs again, under a new id, that cannot be requeued (--no-requeue), as their owner; by default "
        "they are left alone",
    )
    group.add_argument(
        "--slurm-drain-nodes",
        default="0",
        metavar="N",
        help="drain nodes that restarts avoid for broken hardware, at most N at a time, default %(default)s: none",
    )


def _messages(top: argparse.ArgumentParser) -> None:
    text = "Off unless configured. Each decision, refusal, outcome and hand-over to a person is sent at least once."
    group = top.add_argument_group("messages to people", text)
    group.add_argument(
        "--notify-slack-url-file",
        type=Path,
        metavar="FILE",
        help="a file with the address of an incoming webhook of Slack's, read for each message",
    )
    group.add_argument(
        "--notify-sns-topic", metavar="ARN", help="a topic of SNS; needs boto3, which finds credentials by itself"
    )


def _timing(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("timing", "Durations are seconds, or carry units: 500ms, 5s, 1h30m, 1d.")
    for flag, default, text in (
        ("--poll-interval", "5s", "between two polls of Alertmanager"),
        ("--busy-interval", "1s", "between two readings of the scheduler while a restart is under way"),
        ("--http-timeout", "5s", "for Prometheus, Alertmanager and the local launcher"),
        ("--slurm-timeout", "20s", "for one call of squeue or scontrol; after that its effect is in doubt"),
        ("--ray-timeout", "20s", "for one call to Ray's dashboard; after that its effect is in doubt"),
        ("--slurm-interval", "15s", "for which an answer of squeue is reused while nothing depends on it"),
        ("--doubt-window", "60s", "during which a call that is in doubt is not repeated"),
        ("--capture-timeout", "30s", "for the capture of stacks before a job that runs is ended, at most 30s"),
        ("--verify-timeout", "30m", "from the new start until its step must have passed the old one"),
    ):
        group.add_argument(flag, default=default, metavar="DURATION", help=f"{text}, default %(default)s")
    group.add_argument(
        "--max-actions",
        default="4",
        metavar="N",
        help="calls to schedulers that may be under way at a time, default %(default)s",
    )
    group.add_argument(
        "--storm-runs",
        default="5",
        metavar="N",
        help="runs that may be restarted within --storm-window; more are a storm: nothing is, default %(default)s",
    )
    group.add_argument("--storm-window", default="10m", metavar="DURATION", help="default %(default)s")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = parser().parse_args(argv)
    keep_child_status()
    try:
        if arguments.command == "check-policy":
            return _check_policy(arguments.file, as_data=arguments.json)
        if arguments.command == "check-config":
            return _check_config(arguments)
        if arguments.command == "replay":
            return _replay(arguments)
        if arguments.command == "doctor":
            return _doctor(arguments)
        if arguments.command == "ray":
            return _register(arguments)
        if arguments.command == "undrain":
            return _undrain(arguments)
        if arguments.command == "canary":
            return keep_canary(arguments)
        if arguments.command is not None:
            return _on_record(arguments)
        return _serve(arguments)
    except BrokenPipeError:
        return 0
    except (RemediatorError, UsageError) as error:
        for problem in error.problems if isinstance(error, ConfigError) else (error,):
            print(f"{PROGRAM}: {clean(problem, 4000)}", file=sys.stderr)
        return _MISUSE


def _check_policy(name: str, *, as_data: bool) -> int:
    policy = load_policy(name)
    for warning in policy.warnings():
        print(f"{PROGRAM}: warning: {warning}", file=sys.stderr)
    if as_data:
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
        print(f"{PROGRAM}: {clean(problem, 4000)}", file=sys.stderr)
    for warning in checked.warnings:
        print(f"{PROGRAM}: warning: {clean(warning, 4000)}", file=sys.stderr)
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
        since = None if arguments.since is None else _seconds("--since", arguments.since)
        return commands.show_score(state_dir, arguments.of_policy, since, as_data=as_data)
    if arguments.command in ("approve", "veto"):
        answer = APPROVED if arguments.command == "approve" else VETOED
        return commands.answer_restart(state_dir, arguments.incident, answer, as_data=as_data)
    if arguments.command == "freeze":
        seconds = None if arguments.seconds is None else _seconds("--for", arguments.seconds)
        run_id = arguments.run_id or ""
        return commands.stop_restarts(state_dir, run_id, arguments.reason, seconds, as_data=as_data)
    if arguments.command == "unfreeze":
        return commands.allow_restarts(state_dir, arguments.run_id or "", as_data=as_data)
    if arguments.command == "resume":
        return commands.end_storms(state_dir, as_data=as_data)
    return commands.verify_audit(state_dir, arguments.expect, as_data=as_data)


def _seconds(flag: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError([f"{flag}: {error}"]) from None


def _doctor(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.commands.doctor import examine  # noqa: PLC0415  # see above

    arguments.webhook_token_file = arguments.webhook_token_file or Path(os.devnull)  # it receives nothing
    return examine(settings_from(arguments), arguments.format)


def _register(arguments: argparse.Namespace) -> int:
    arguments.webhook_token_file = arguments.webhook_token_file or Path(os.devnull)  # it receives nothing
    if arguments.ray_template_dir is not None:
        arguments.ray_template_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return register(settings_from(arguments), arguments)


def _undrain(arguments: argparse.Namespace) -> int:
    from trainwarden_remediator.act.drains import undrain  # noqa: PLC0415  # see above
    from trainwarden_remediator.drivers.slurm import slurm_client  # noqa: PLC0415  # see above

    arguments.webhook_token_file = arguments.webhook_token_file or Path(os.devnull)  # it receives nothing
    settings = settings_from(arguments)
    problems = undrain(slurm_client(settings.slurm_bin_dir, settings.slurm_timeout), arguments.nodes)
    for problem in problems:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
    return 1 if problems else 0


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
