"""The command `trainwarden-remediator`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import trainwarden
from trainwarden.clients.process import keep_child_status
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.service_log import FORMATS, log_to_stderr
from trainwarden_remediator import app
from trainwarden_remediator.config import default_state_dir, settings_from
from trainwarden_remediator.database import open_read_only
from trainwarden_remediator.errors import ConfigError, RemediatorError
from trainwarden_remediator.incident import as_json, as_text, clean
from trainwarden_remediator.policy import DEFAULT_POLICY, load_policy, shipped
from trainwarden_remediator.store import read_log

PROGRAM = "trainwarden-remediator"
_MISUSE = 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = CommandLine(
        prog=PROGRAM,
        description="Takes alerts from Alertmanager, decides by a policy whether a restart helps, and restarts once.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {trainwarden.__version__}")
    _serving(top)
    _drivers(top)
    _timing(top)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands, instead of serving")
    check = commands.add_parser("check-policy", help="check a policy file; status 0 if it is right, 2 if not")
    check.add_argument("file", metavar="FILE", help="a policy file, or the name of a shipped one")
    decisions = commands.add_parser("decisions", help="show what was decided and done, beside a running remediator")
    decisions.add_argument("--state-dir", type=Path, required=True, metavar="DIR", help="the remediator's state folder")
    decisions.add_argument("--run-id", metavar="RUN", help="only this run")
    decisions.add_argument("--format", choices=("text", "json"), default="text", help="default %(default)s")
    return top


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
        help="the bearer token that the webhook and the API check; required",
    )
    group.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(dict(os.environ)),
        metavar="DIR",
        help="the database, on a local file system, default %(default)s",
    )
    for name, port, tool in (("alertmanager", 9093, "amtool"), ("prometheus", 9090, "promtool")):
        group.add_argument(
            f"--{name}-url", default=f"http://127.0.0.1:{port}", metavar="URL", help="default %(default)s"
        )
        group.add_argument(
            f"--{name}-http-config-file",
            type=Path,
            metavar="FILE",
            help=f"credentials and certificates for it, in the format of {tool} --http.config.file",
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
        choices=("local", "slurm"),
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


def _timing(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("timing", "Durations are seconds, or carry units: 500ms, 5s, 1h30m, 1d.")
    for flag, default, text in (
        ("--poll-interval", "5s", "between two looks at Alertmanager"),
        ("--busy-interval", "1s", "between two looks at the scheduler while a restart is under way"),
        ("--http-timeout", "5s", "for Prometheus, Alertmanager and the local launcher"),
        ("--slurm-timeout", "20s", "for one call of squeue or scontrol; after that its effect is in doubt"),
        ("--slurm-interval", "15s", "for which an answer of squeue serves while nothing depends on it"),
        ("--doubt-window", "60s", "during which a call that is in doubt is not repeated"),
        ("--verify-timeout", "30m", "from the new start until its step must have passed the old one"),
    ):
        group.add_argument(flag, default=default, metavar="DURATION", help=f"{text}, default %(default)s")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = parser().parse_args(argv)
    keep_child_status()
    try:
        if arguments.command == "check-policy":
            return _check_policy(arguments.file)
        if arguments.command == "decisions":
            return _decisions(arguments.state_dir, arguments.run_id, arguments.format)
        return _serve(arguments)
    except BrokenPipeError:
        return 0
    except (RemediatorError, UsageError) as error:
        print(f"{PROGRAM}: {clean(error, 4000)}", file=sys.stderr)
        return _MISUSE


def _check_policy(name: str) -> int:
    try:
        policy = load_policy(name)
    except ConfigError as error:
        for problem in error.problems:
            print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return _MISUSE
    for warning in policy.warnings():
        print(f"{PROGRAM}: warning: {warning}", file=sys.stderr)
    for mode, rule in policy.rules.items():
        limit = "" if rule.class_name == "NoRestartPolicy" else f", at most {rule.max_retries}"
        print(f"{mode}: {rule.class_name}{limit}")
    return 0


def _decisions(state_dir: Path, run_id: str | None, form: str) -> int:
    engine = open_read_only(state_dir)
    with engine.connect() as connection:
        found = read_log(connection, run_id)
    engine.dispose()
    if form == "json":
        print(json.dumps([as_json(incident, events) for incident, events in found], indent=2))
    else:
        print(as_text(found), end="")
        if not found:
            print(f"{PROGRAM}: {state_dir}: no decision{f' about {run_id}' if run_id else ''} yet", file=sys.stderr)
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.webhook_token_file is None:
        raise ConfigError(["--webhook-token-file: missing; there is no mode without a token"])
    log_to_stderr(arguments.log_level.upper(), "%(asctime)s %(levelname)s %(message)s", arguments.log_format)
    settings = settings_from(arguments)
    stop = threading.Event()
    received: list[int] = []
    # Wait for the signals instead of handling them: a handler that interrupts the event's own code would deadlock.
    # Block them before any other thread starts, for every thread inherits the mask.
    signals = {signal.SIGTERM, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def listen() -> None:
        received.append(signal.sigwait(signals))
        stop.set()

    threading.Thread(target=listen, name="signals", daemon=True).start()
    try:
        app.serve(settings, stop)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 130 if received[:1] == [signal.SIGINT] else 0
