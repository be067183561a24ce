"""The parser of the command lines: what is wrong is one line, not the list of all options."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any

from trainwarden.duration import parse_duration
from trainwarden.identity import InvalidRunId, check_run_id

# The status that a shell gives a command that SIGPIPE has ended.
BROKEN_PIPE = 141
# Where the first clause of a sentence ends.
_CLAUSE = re.compile(r"[;,:] ")


class _UsualHelp(argparse.Action):
    """Prints the usual options, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002  # argparse's name
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print, and end with status 0."""
        if isinstance(parser, CommandLine):
            sys.stdout.write(parser.usual_help())
        parser.exit()


class CommandLine(argparse.ArgumentParser):
    """Ends with status 2 and one line that names option, value and what was expected.

    Args:
        usual: the options that `--help` shows, where there are more than fit a screen; `--help-all` shows all.
        arguments: of ArgumentParser.
        options: of ArgumentParser.
    """

    def __init__(self, *arguments: Any, usual: Collection[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **{"add_help": not usual, **options})
        self._usual = usual
        if usual:
            self.add_argument("-h", "--help", action=_UsualHelp, help="show the usual options and end")
            self.add_argument("--help-all", action="help", help="show all options and end")

    def usual_help(self) -> str:
        """Return the help about the usual options, and about each command in one line."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage or "%(prog)s [options] [COMMAND ...]", [], [])
        formatter.add_text(self.description)
        options = [each for each in self._actions if each.option_strings and each.option_strings[-1] in self._usual]
        formatter.start_section("usual options (--help-all shows all)")
        formatter.add_arguments(options)
        formatter.end_section()
        text = formatter.format_help()
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # has no public name
                commands = [(str(each.dest), str(each.help)) for each in action._choices_actions]  # noqa: SLF001
                lines = [f"  {name:<14}{_CLAUSE.split(about)[0]}" for name, about in commands]
                text += "\n".join([f"\ncommands; `{self.prog} COMMAND --help` says more:", *lines, ""])
        return text

    def error(self, message: str) -> None:  # type: ignore[override]  # NoReturn by self.exit
        """Print one line and end."""
        unknown = message.partition("unrecognized arguments: ")[2].partition(" ")[0].partition("=")[0]
        if unknown.startswith("--"):
            import difflib  # noqa: PLC0415  # for mistakes alone

            near = difflib.get_close_matches(unknown, self._option_string_actions, 1)
            message += f", expected {near[0]}?" if near else f"; `{self.prog} --help` lists the options"
        self.exit(2, f"{self.prog}: {message}\n")


def discard_output() -> int:
    """Discard the rest of the output, which its reader has closed; return the exit status for that.

    Else the interpreter would report the closed pipe again at its final flush.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def duration_seconds(text: str) -> float:
    """Return the seconds of a duration as Prometheus writes it; raise what argparse shows where it is none."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def timeout_seconds(text: str) -> float:
    """Return the same, a day at most."""
    seconds = duration_seconds(text)
    if seconds > 86_400:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a day at most")
    return seconds


def valid_run_id(text: str) -> str:
    """Return the id of a run; an empty one, as of a variable that is not set, must not stand for all runs."""
    try:
        return check_run_id(text)
    except InvalidRunId as error:
        raise argparse.ArgumentTypeError(str(error)) from None
