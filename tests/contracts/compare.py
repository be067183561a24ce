"""Contracts as text: each family is a module beside this one whose `lines()` returns what its text file holds."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
# What is left out of `PROCESSES` starts none, so that `make test-fast` runs it.
FAMILIES = (
    "alerts", "commands", "configuration", "messages", "metrics", "python_api", "routes", "shipped", "statuses",
    "variables",
)  # fmt: skip
PROCESSES = ("exec_statuses",)
# What ends and tidies up after the tests goes by these.
_OF_THE_TESTS = ("PATH", "PYTHONPATH", "TMPDIR", "TW_TEST_SESSION")
_REMEDY = "The contract has changed: run `make contracts`, read the diff, and write a line in CHANGELOG.md.\n"


def expected_file(family: str) -> Path:
    """Return the file that holds a family's contract."""
    return FOLDER / "text" / f"{family}.txt"


def observed(family: str) -> list[str]:
    """Return a family's contract as it is now."""
    with plain_environment():
        lines: Iterable[str] = import_module(f"tests.contracts.{family}").lines()
        return [line for each in lines for line in each.split("\n")]


def difference(name: str, expected: Sequence[str], found: Sequence[str]) -> str:
    """Return what has changed and what to do about it; empty where nothing has."""
    changed = "\n".join(difflib.unified_diff(expected, found, f"{name} as written", f"{name} as it is", "", "", 1, ""))
    return f"{changed}\n{_REMEDY}" if changed else ""


@contextlib.contextmanager
def plain_environment() -> Iterator[None]:
    """Take away what a machine, a job or a user's settings would add to defaults."""
    kept = {name: os.environ[name] for name in _OF_THE_TESTS if name in os.environ}
    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.dict(os.environ, {**kept, "HOME": home, "TZ": "UTC"}, clear=True),
    ):
        yield


def anywhere(text: str) -> str:
    """Return a text without what depends on the machine: the folder of states, the host's name."""
    for folder in (f"{os.environ['HOME']}/.local/state/trainwarden", "/var/lib/trainwarden"):
        text = text.replace(folder, "<state>")
    return text.replace(os.uname().nodename, "<host>")
