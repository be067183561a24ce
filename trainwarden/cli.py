"""The `trainwarden` command: its own subcommands, and those that installed packages add.

Shell scripts call some of them all the time, so this loads nothing before it must.
"""

from __future__ import annotations

import gc
import os
import sys

from trainwarden import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any, NoReturn

    Command = Callable[[list[str]], int]

# Where each command is, module and function (`main` if none), and what it does.
_OWN = {
    "up": ("trainwarden.stack.up", "start the whole stack around a training command"),
    "exec": ("trainwarden.exec.command", "watch a command that cannot be changed"),
    "heartbeat": ("trainwarden.shell.heartbeat:heartbeat", "from a shell script: this run lives, and made this step"),
    "phase": ("trainwarden.shell.heartbeat:phase", "from a shell script: what the run does now"),
    "fail": ("trainwarden.shell.fail", "from a shell script: the run has failed"),
    "complete": ("trainwarden.shell.complete", "from a shell script: the run has finished"),
    "keep": ("trainwarden.shell.keeper", "for trainwarden.sh: keep an attempt alive while a script runs"),
    "shell-init": ("trainwarden.shell:shell_init", "where trainwarden.sh is, for shell scripts to source"),
    "checkpoints": ("trainwarden.checkpoint.command", "find checkpoints and say whether they are complete"),
    "scan": ("trainwarden.scan.command", "name the cause of a failure from the logs that it left"),
    "rules": ("trainwarden.rules.command", "make the rule files of a Prometheus, with your own values"),
    "actions": ("trainwarden.actions.command", "run declared commands on events of runs"),
    "slurm": ("trainwarden.jobs.slurm_command", "make runs of SLURM jobs that use no library"),
    "ray": ("trainwarden.jobs.ray_command", "make runs of submitted Ray jobs that use no library"),
    "watch": ("trainwarden.jobs.log_command", "watch one log; alert when its training fails or stands still"),
    "runs": ("trainwarden.runs.listing", "list the runs whose records are in a folder or in S3"),
    "status": ("trainwarden.runs.status", "show how a run is, once or live"),
    "compare": ("trainwarden.runs.compare", "compare runs and attempts: duration, loss, speed, cost"),
    "report": ("trainwarden.report.command", "write one HTML page about a run: what happened, why, its cost"),
    "health": ("trainwarden.runs.health", "report on a run's GPUs, network, checkpoints, cluster"),
    "doctor": ("trainwarden.doctor.command", "find what is wrong with this installation, and how to mend it"),
    "top": ("trainwarden.top", "show all runs and nodes in a table that is kept up to date"),
    "tunnel": ("trainwarden.tunnel", "forward a port of metrics by ssh, and check it"),
    "monitor": ("trainwarden.monitor.command", "alert about runs from their records, without a Prometheus"),
}
# The same for what the exporter adds, which is not imported for a list of commands.
_ADDED = {
    "metrics-server": "serve the metrics of one fine-tuning job, beside it",
    "validate-job": "check loss, model, checkpoint and profile of a finished job",
}
_BRIEF = ("heartbeat", "phase", "fail", "complete")
# Which extra brings what is imported under these names; the stack has everything else.
_EXTRAS = {
    "ahocorasick_rs": "exporter",
    "yaml": "exporter",
    "regex": "exporter",
    "boto3": "s3",
    "botocore": "s3",
    "rich": "top",
}
_ENTRY_POINTS = "trainwarden.commands"


def main(argv: list[str] | None = None, load: Callable[[str], Command] | None = None) -> int:
    """Run one subcommand and return its exit status; 2 for misuse.

    Args:
        argv: name and arguments; if None, those of the process, which then ends with the subcommand.
        load: return the function of one of the commands here; may raise `ImportError`. `load_command` if None.
    """
    is_process = argv is None
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0].startswith("-"):
        parser = _parser()
        parser.parse_args(argv)
        parser.print_help(sys.stderr)
        return 2
    # What follows the name is the command's own, options and `--` and all.
    name, rest = argv[0], argv[1:]
    if is_process and name in _BRIEF:
        # It ends before there is anything to collect, and to look for it takes a twentieth of its time.
        gc.disable()
    try:
        command = (load or load_command)(name) if name in _OWN else _added(name)
    except ImportError as error:
        print(f"trainwarden {name}: {_why_not_loaded(name, error)}", file=sys.stderr)
        return 2
    if command is None:
        from difflib import get_close_matches  # noqa: PLC0415  # for those who misspell

        near = get_close_matches(name, [*_OWN, *_all_added()], 1)
        expected = f"expected {near[0]}?" if near else "`trainwarden --help` lists them"
        _parser().error(f"there is no command {name!r}; {expected}")
    try:
        status = command(rest)
        if sys.stdout is not None and name not in _BRIEF:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        from trainwarden.command_line import discard_output  # noqa: PLC0415  # see above

        return discard_output()
    if is_process and name in _BRIEF:
        _leave(status)
    return status


def _why_not_loaded(name: str, error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package or package in sys.stdlib_module_names:
        return str(error)
    if package.startswith("trainwarden"):
        return f"{error.name} is missing from what is installed of trainwarden; install it again"
    extra = "stack" if name == "up" else _EXTRAS.get(package, "stack")
    return f"{package} is not installed; pip install 'trainwarden[{extra}]' brings it"


def _leave(status: int) -> NoReturn:
    """End the process at once: to take an interpreter apart takes longer than these commands."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):  # noqa: PERF203  # two, and the parent may have closed either
            continue
    os._exit(status)


def _parser() -> argparse.ArgumentParser:
    import argparse  # noqa: PLC0415  # see above

    listed = {name: what for name, (_, what) in _OWN.items()}
    listed |= {name: _ADDED.get(name, f"added by {module}") for name, module in _all_added().items()}
    commands = "\n".join(f"  {name:<15} {what}" for name, what in listed.items())
    from trainwarden.command_line import CommandLine  # noqa: PLC0415  # see above

    parser = CommandLine(
        prog="trainwarden",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Watch training runs, and bring them back when they break.",
        epilog=f"commands:\n{commands}\n\n`trainwarden COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainwarden {__version__}")
    return parser


def load_command(name: str) -> Command:
    """Import the module of one of the commands here, and return its function."""
    module, _, function = _OWN[name][0].partition(":")
    home: Any = __import__(module, fromlist=["main"])
    command: Command = getattr(home, function or "main")
    return command


def _added(name: str) -> Command | None:
    from importlib.metadata import entry_points  # noqa: PLC0415  # see above

    for entry_point in entry_points(group=_ENTRY_POINTS, name=name):
        command: Command = entry_point.load()
        return command
    return None


def _all_added() -> dict[str, str]:
    """The packages that the other commands come from, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # see above

    found = entry_points(group=_ENTRY_POINTS)
    return {each.name: each.module.partition(".")[0] for each in found if each.name not in _OWN}
