"""Measurements as tables, and their place in a page."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """A markdown table; `note` stands below it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table as it stands in a page: text on the left, numbers on the right."""
        lines = [_line(self.columns), "|---|" + "---:|" * (len(self.columns) - 1), *map(_line, self.rows)]
        return "\n".join([*lines, "", self.note] if self.note else lines)


def verdict(is_met: bool) -> str:
    """How a row says whether its target was met."""
    return "met" if is_met else "**missed**"


def machine() -> str:
    """One line about where this was measured."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = model.group(1) if model else platform.machine()
    return f"CPython {platform.python_version()} on Linux, {os.cpu_count()} cores of {name}"


def insert(page: str, name: str, text: str) -> str:
    """The page with `text` between the markers of the benchmark `name`.

    Raises:
        ValueError: the page has no such markers.
    """
    begin, end = f"<!-- measured: {name} -->\n", f"<!-- end: {name} -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no markers {begin.strip()} … {end}")
    return f"{head}{begin}\n{text}\n\n{end}{tail}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
