"""`trainwarden up -- COMMAND`: the whole of Trainwarden around one command on this machine, until it ends."""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from trainwarden.clients.process import keep_child_status
from trainwarden.clients.ray import RayError
from trainwarden.clients.ray_jobs import RayReserved
from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record.folder import run_folder, runs_dir
from trainwarden.record.ownership import owner_of
from trainwarden.record.thresholds import (
    FACTOR_VARIABLE,
    STALL_VARIABLE,
    InvalidThreshold,
    choose,
    given_stall,
    stall_budgets,
    stall_text,
)
from trainwarden.stack import launcher
from trainwarden.stack.binaries import ToolsMissing, find_tools
from trainwarden.stack.budgets import choose_policy
from trainwarden.stack.bundle import BundleMissing
from trainwarden.stack.local_stack import SERVICES
from trainwarden.stack.log_roots import log_roots
from trainwarden.stack.ports import PortBusy
from trainwarden.stack.ray_launcher import RayCluster
from trainwarden.stack.scheduled_launcher import SchedulerCluster
from trainwarden.stack.service import ServiceFailed
from trainwarden.stack.session import Outcome, Session, UpRequest
from trainwarden.stack.slurm_launcher import SlurmCluster
from trainwarden.stack.terminal import Terminal
from trainwarden.yaml_file import read_yaml

MISUSE = 2
INTERRUPTED = 130
# What `--help` shows.
_USUAL = (
    "--run-id", "--policy", "--state-dir", "--stall-seconds", "--stale-seconds", "--grace-seconds",
    "--slack-url-file", "--driver", "--quiet", "--keep", "--open",
)  # fmt: skip
# Imported by the services; the extra `stack` installs them.
NEEDED = ("h11", "prometheus_client", "pydantic", "sqlalchemy", "yaml")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = CommandLine(
        prog="trainwarden up",
        usage="trainwarden up [options] -- COMMAND [ARGUMENT ...]",
        description="Runs COMMAND, watches it, and restarts it from its last verified checkpoint when that helps. "
        "Exporter, Prometheus, Alertmanager and remediator run beside it on loopback and end with it.",
        usual=_USUAL,
    )
    parser.add_argument("--run-id", help="name of the run (default: $TRAINWARDEN_RUN_ID, else made of script and time)")
    parser.add_argument(
        "--policy",
        default="megatron_transient",
        help="restart policy: a shipped name or a YAML file (default: %(default)s)",
    )
    parser.add_argument(
        "--state-dir", type=_folder, help="everything is kept here (default: $XDG_STATE_HOME/trainwarden/up/RUN_ID)"
    )
    parser.add_argument(
        "--runs-dir", type=_folder, help="folder of run records (default: $TRAINWARDEN_RUNS_DIR, else STATE_DIR/runs)"
    )
    parser.add_argument(
        "--stall-seconds",
        action="append",
        metavar="S[,PHASE=S]",
        help="how long the training may make no step, also of single phases, as in 120,init=900; repeatable "
        "(default: the run's own, else 600)",
    )
    parser.add_argument(
        "--stale-seconds",
        type=duration_seconds,
        help="how long a run may give no sign of life (default: the run's own, else 600)",
    )
    parser.add_argument(
        "--thresholds",
        type=Path,
        metavar="FILE",
        help="YAML file with stale_seconds and stall_seconds, the latter by phase; the two options above precede it",
    )
    parser.add_argument(
        "--grace-seconds", type=duration_seconds, default=5.0, help="between SIGTERM and SIGKILL (default: %(default)s)"
    )
    parser.add_argument(
        "--slack-url-file",
        type=Path,
        help="file with a Slack incoming webhook (default: $SLACK_WEBHOOK_URL, else the terminal)",
    )
    parser.add_argument(
        "--driver",
        choices=("local", "slurm", "ray"),
        default="local",
        help="run COMMAND as a process, as a batch job of SLURM, or as a job of a Ray cluster on this machine "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--slurm-bin-dir", type=Path, metavar="DIR", help="where sbatch, squeue, scontrol and scancel are, default PATH"
    )
    parser.add_argument(
        "--sbatch-option", action="append", default=[], metavar="OPTION", help="of the job, as in --gpus=8; repeatable"
    )
    parser.add_argument(
        "--ray-address", metavar="URL", default="http://127.0.0.1:8265", help="Ray's dashboard (default: %(default)s)"
    )
    parser.add_argument("--ray-token-file", type=Path, metavar="FILE", help="the token that the dashboard requires")
    parser.add_argument(
        "--ray-num-gpus", type=_amount, metavar="N", default=0.0, help="of Ray, reserved for COMMAND (default: 0)"
    )
    parser.add_argument(
        "--ray-num-cpus", type=_amount, metavar="N", default=0.0, help="of Ray, reserved for COMMAND (default: 0)"
    )
    for name in SERVICES:
        parser.add_argument(
            f"--{name}-port", type=int, default=0, help="loopback port, 0 for any free one (default: 0)"
        )
    parser.add_argument(
        "--tools-dir", type=Path, help="where Prometheus and Alertmanager are, or are unpacked to, where PATH has none"
    )
    parser.add_argument("--quiet", action="store_true", help="do not show the command's output")
    parser.add_argument("--keep", action="store_true", help="leave the stack up after the end, until Ctrl-C")
    parser.add_argument("--open", action="store_true", help="open the report about the run in a browser at the end")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its own status, 2 if it could not be started as requested, 130 if interrupted."""
    options = parser().parse_args(arguments)
    keep_child_status()
    terminal = Terminal()
    try:
        _require_installed()
        request = to_request(options, os.environ)
        tools = find_tools(options.tools_dir, report=lambda line: terminal.event("tools", line))
        terminal.event("tools", f"{tools.versions()} ({tools.source})")
        outcome = Session(request, tools, terminal).run()
    except (UsageError, ToolsMissing, BundleMissing, PortBusy, ServiceFailed) as error:
        print(f"trainwarden up: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        print(f"trainwarden up: {error.filename or 'state'}: {error.strerror}", file=sys.stderr)
        return MISUSE
    return status(outcome)


def status(outcome: Outcome) -> int:
    """Return the command's exit status, 128+n for a signal, as a shell does."""
    if outcome.interrupted:
        return INTERRUPTED
    code = outcome.job.exit_code
    if code is None:
        return 1
    if code == 0 and outcome.job.state == launcher.FAILED:
        return 1
    return 128 - code if code < 0 else code


def to_request(options: argparse.Namespace, environ: Mapping[str, str]) -> UpRequest:
    """Validate the options; create the state folder. Raises UsageError."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        message = "no command was given; expected: trainwarden up [options] -- COMMAND [ARGUMENT ...]"
        raise UsageError(message)
    if shutil.which(command[0]) is None:
        message = f"the command {command[0]!r} is neither on PATH nor an executable file"
        raise UsageError(message)
    given = options.run_id if options.run_id is not None else environ.get("TRAINWARDEN_RUN_ID")
    run_id = _run_id(given, command)
    ports = {name: _port(name, getattr(options, f"{name}_port")) for name in SERVICES}
    slack_url = _slack_url(options.slack_url_file, environ)
    limits = _thresholds(options, environ)
    policy, restarts = choose_policy(options.policy, environ)
    folders = log_roots(environ, Path.cwd())
    cluster = _cluster(options)
    # A refused request leaves no folder behind.
    state_dir = _writable(options.state_dir or _default_state_dir(environ) / run_id, "--state-dir")
    runs = _writable(options.runs_dir or _given_runs_dir(environ) or state_dir / "runs", "--runs-dir")
    _refuse_owned(run_id, runs)
    _hold(state_dir / ".in-use", f"--state-dir {state_dir}")
    _hold(run_folder(run_id, runs) / ".launcher", f"--run-id {run_id}")
    return UpRequest(
        command=command,
        run_id=run_id,
        state_dir=state_dir,
        runs_dir=runs,
        environment={**environ, **limits},
        policy=policy,
        restarts=restarts,
        log_roots=folders,
        slack_url=slack_url,
        grace_seconds=options.grace_seconds,
        ports=ports,
        show_output=not options.quiet,
        keep=options.keep,
        open_report=options.open,
        cluster=cluster,
    )


def _cluster(options: argparse.Namespace) -> SchedulerCluster | None:
    """Return the cluster to use, once it has answered; None where the command is a process of this machine."""
    if options.driver == "slurm":
        slurm = SlurmCluster(options.slurm_bin_dir, options.sbatch_option)
        slurm.check()
        return slurm
    if options.driver != "ray":
        return None
    if not re.fullmatch(r"https?://[A-Za-z0-9._:/\[\]-]+", options.ray_address):
        raise UsageError("--ray-address: expected http://HOST:PORT")
    reserved = RayReserved(num_cpus=options.ray_num_cpus, num_gpus=options.ray_num_gpus)
    cluster = RayCluster(options.ray_address.rstrip("/"), options.ray_token_file, reserved)
    try:
        cluster.jobs().version()
    except RayError as error:
        raise UsageError(f"--ray-address {cluster.address}: {error}") from None
    return cluster


def _folder(text: str) -> Path:
    if not text:
        message = "a folder was expected"
        raise argparse.ArgumentTypeError(message)
    return Path(text)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    # Ray takes a fraction of one, or a whole number of them.
    if not 0 <= value < 1e6 or (value > 1 and value != int(value)):
        message = f"{text!r} is neither a whole number nor a fraction of one"
        raise argparse.ArgumentTypeError(message)
    return value


def _port(name: str, value: int) -> int:
    if not 0 <= value <= 65535:
        message = f"--{name}-port {value}: a port from 1 to 65535 was expected, or 0 for any"
        raise UsageError(message)
    return value


def _run_id(given: str | None, command: Sequence[str]) -> str:
    made = f"{_subject(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        return check_run_id(re.sub(r"[^A-Za-z0-9_-]", "-", made).lstrip("_-") if given is None else given)
    except InvalidRunId as error:
        message = f"--run-id: {error}"
        raise UsageError(message) from None


def _subject(command: Sequence[str]) -> str:
    """Return what a command is about: its script, else its module, else the program."""
    script = next((word for word in command if word.endswith((".py", ".sh"))), None)
    if script is not None:
        return Path(script).stem
    module = next((after for word, after in pairwise(command) if word == "-m"), None)
    return module.rpartition(".")[2] if module else Path(command[0]).stem


def _default_state_dir(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".local/state")
    return Path(state) / "trainwarden" / "up"


def _given_runs_dir(environ: Mapping[str, str]) -> Path | None:
    return runs_dir(environ) if environ.get("TRAINWARDEN_RUNS_DIR") else None


def _writable(folder: Path, option: str) -> Path:
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        message = f"{option} {folder}: {error.strerror}; a folder that can be written was expected"
        raise UsageError(message) from None
    return folder


def _refuse_owned(run_id: str, runs: Path) -> None:
    owner = owner_of(run_folder(run_id, runs))
    if owner is not None:
        message = f"--run-id {run_id}: a live run owns its folder: {owner}"
        raise UsageError(message)


def _hold(path: Path, what: str) -> None:
    """Hold a lock until this process ends; the kernel releases it however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        message = f"{what}: another trainwarden up (process {holder or '?'}) uses it"
        raise UsageError(message) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def _thresholds(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that pass the thresholds on to the command."""
    stall: dict[str, float] = {}
    stale: float | None = None
    factor: float | None = None
    try:
        if options.thresholds is not None:
            document = read_yaml(options.thresholds).data() or {}
            in_file = choose(document, {})
            stall = {phase: in_file.stall_seconds[phase] for phase in document.get("stall_seconds") or {}}
            stale = in_file.stale_seconds if "stale_seconds" in document else None
            factor = in_file.stall_factor
        for text in options.stall_seconds or ():
            stall |= stall_budgets(text, "--stall-seconds")
        # What the environment gives counts where neither option nor file does.
        stall = {**given_stall(environ), **stall}
        choose(None, environ)
    except InvalidThreshold as error:
        where = f"--thresholds {options.thresholds}: " if str(error).startswith("thresholds") else ""
        raise UsageError(f"{where}{error}") from None
    stale = options.stale_seconds if options.stale_seconds is not None else stale
    variables = {STALL_VARIABLE: stall_text(stall)} if stall else {}
    if factor is not None:
        variables[FACTOR_VARIABLE] = f"{factor:.12g}"
    return variables if stale is None else {**variables, "STALE_MINUTES": f"{stale / 60:.6g}"}


def _slack_url(file: Path | None, environ: Mapping[str, str]) -> str | None:
    source, url = "SLACK_WEBHOOK_URL", environ.get("SLACK_WEBHOOK_URL", "")
    if file is not None:
        source = f"--slack-url-file {file}"
        try:
            url = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            message = f"{source}: {error.strerror}"
            raise UsageError(message) from None
        except UnicodeDecodeError:
            url = "?"
    if url and not url.startswith(("http://", "https://")):
        message = f"{source}: the http(s) address of a Slack incoming webhook was expected"
        raise UsageError(message)
    return url or None


def _require_installed() -> None:
    """Check that what the services import is installed.

    Raises:
        ServiceFailed: something is missing; the message names it, and what installs it.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ServiceFailed(
            f"{', '.join(missing)} {verb} not installed; pip install 'trainwarden[stack]' brings what is needed"
        )


if __name__ == "__main__":
    sys.exit(main())
