"""Calls the commands in this process, as their entry points say."""

from __future__ import annotations

import contextlib
import inspect
import io
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple
from unittest import mock


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    output: str
    errors: str


def main_of(command: str) -> Callable[[Sequence[str]], int]:
    """Return what a command calls, with the words that follow its name as the argument."""
    [script] = entry_points(group="console_scripts", name=command)
    main: Callable[..., int] = script.load()

    def run(words: Sequence[str]) -> int:
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            with mock.patch.object(sys, "argv", [command, *words]):
                return main([*words]) if inspect.signature(main).parameters else main()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)

    return run


def call(command: str, *words: str) -> Ended:
    """Run a command to its end."""
    output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            status = main_of(command)(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    output.flush()
    output.seek(0)
    return Ended(status, output.read(), errors.getvalue())
