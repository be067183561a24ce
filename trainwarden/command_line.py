"""The parser of the command lines: what is wrong is one line, not the list of all options."""

from __future__ import annotations

import argparse

from trainwarden.duration import parse_duration


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
