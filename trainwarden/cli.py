"""The `trainwarden` command: its own subcommands, and those that installed packages add."""

import argparse
import importlib
import sys
from collections.abc import Callable

from trainwarden import __version__

Command = Callable[[list[str]], int]

_OWN = {
    "up": ("trainwarden.stack.up", "start the whole stack around a training command"),
    "runs": ("trainwarden.listing", "list the runs whose records are in a folder"),
}
_ENTRY_POINTS = "trainwarden.commands"


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status; 2 for misuse."""
    argv = sys.argv[1:] if argv is None else argv
    parser = _parser()
    if not argv or argv[0].startswith("-"):
        parser.parse_args(argv)
        parser.print_help(sys.stderr)
        return 2
    # What follows the name is the command's own, options and `--` and all.
    name, rest = argv[0], argv[1:]
    try:
        command = _own(name) if name in _OWN else _added(name)
    except ImportError as error:
        missing = error.name or str(error)
        print(
            f"trainwarden {name}: {missing} is not installed; pip install 'trainwarden[stack]' brings it",
            file=sys.stderr,
        )
        return 2
    if command is None:
        parser.error(f"there is no command {name!r}; `trainwarden --help` lists them")
    try:
        return command(rest)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:<10} {what}" for name, (_, what) in _OWN.items())
    parser = argparse.ArgumentParser(
        prog="trainwarden",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Watch training runs, and bring them back when they break.",
        epilog=f"commands:\n{commands}\n\n`trainwarden COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainwarden {__version__}")
    return parser


def _own(name: str) -> Command:
    command: Command = importlib.import_module(_OWN[name][0]).main
    return command


def _added(name: str) -> Command | None:
    # Reading what is installed takes long, so it is done only for a name that is not ours.
    from importlib.metadata import entry_points  # noqa: PLC0415

    for entry_point in entry_points(group=_ENTRY_POINTS, name=name):
        command: Command = entry_point.load()
        return command
    return None
