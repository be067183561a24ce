"""Tables and quantities as commands print them: for people, and for programs that read them aloud."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

UNKNOWN = "-"
# A longer one is no duration of a run: some 300 years.
_LONGEST_SECONDS = 1e10
_LARGEST_CHANGE = 10.0


def shown(text: object) -> str:
    """Return text of others for a terminal: one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO | None = None) -> None:
    """Print rows under the names of their columns, parted by two spaces; no lines are drawn."""
    stream = stream or sys.stdout
    lines = [list(columns), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n", stream)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print text; characters that the terminal's encoding lacks are escaped."""
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def age_text(seconds: float | None) -> str:
    """Return how long ago something was."""
    return UNKNOWN if seconds is None else f"{duration_text(int(max(0.0, seconds)))} ago"


def duration_text(seconds: float | None) -> str:
    """Return a duration in the largest unit of which it has two."""
    if seconds is None:
        return UNKNOWN
    if 0 < seconds < 10 and seconds % 1:
        return f"{seconds:.1f} s"
    if seconds >= _LONGEST_SECONDS:
        return f"{seconds / 86400:.3g} d"
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def change_text(ratio: float) -> str:
    """Return a change in percent, such as -10.0% for -0.1; as a factor beyond 1000 %."""
    return f"{ratio:+.1%}" if abs(ratio) <= _LARGEST_CHANGE else f"x{1 + ratio:.3g}"


def number_text(value: float | None, digits: int = 4) -> str:
    """Return a number with so many significant digits; a larger one as a whole number, such as tokens per second."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"
