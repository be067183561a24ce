"""The parser of the command lines: what is wrong is one line, not the list of all options."""

from __future__ import annotations

import argparse


class CommandLine(argparse.ArgumentParser):
    """Ends with status 2 and one line that names option, value and what was expected."""

    def error(self, message: str) -> None:  # type: ignore[override]  # NoReturn by self.exit
        """Print one line and end."""
        unknown = message.partition("unrecognized arguments: ")[2].partition(" ")[0].partition("=")[0]
        if unknown.startswith("--"):
            import difflib  # noqa: PLC0415  # for mistakes alone

            near = difflib.get_close_matches(unknown, self._option_string_actions, 1)
            message += f", expected {near[0]}?" if near else f"; `{self.prog} --help` lists the options"
        self.exit(2, f"{self.prog}: {message}\n")


def timeout_seconds(text: str) -> float:
    """Return the seconds that an option states, a day at most; raise what argparse shows where it states none."""
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("expected more than 0 and at most 86400 seconds")
    return seconds
