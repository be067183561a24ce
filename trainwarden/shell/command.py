"""How a shell command ends: what is said, and the exit status."""

from __future__ import annotations

import os
import sys

from trainwarden.shell.arguments import Help, Misuse
from trainwarden.shell.not_recorded import NotRecorded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DONE, NOT_RECORDED, MISUSE = 0, 1, 2


def run(name: str, usage: str, body: Callable[[], list[str]], *, lenient: Callable[[], bool]) -> int:
    """Run a command; returns its exit status.

    Args:
        name: of the command.
        usage: printed for `--help`.
        body: does it, and returns lines that are worth a word but no failure.
        lenient: asked when nothing could be recorded, whether that is a word and status 0, or a failure.
    """
    try:
        lines = body()
    except Help:
        sys.stdout.write(usage)
        return DONE
    except Misuse as error:
        _tell(name, f"{error}; `trainwarden {name} --help` says more")
        return MISUSE
    except NotRecorded as error:
        _tell(name, f"nothing was recorded: {error}")
        return DONE if lenient() else NOT_RECORDED
    for line in lines:
        _tell(name, line)
    return DONE


def _tell(name: str, line: str) -> None:
    try:
        os.write(2, f"trainwarden {name}: {line}\n".encode("utf-8", "replace"))
    except OSError:
        return
