"""The line on a terminal that shows how far the reading is."""

from __future__ import annotations

import io
import itertools
import time

import pytest

from tests.cases import cases
from trainwarden.scan.meter import Meter

LARGE = 1 << 30


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a second later."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))


def test_a_large_file_shows_its_share_and_leaves_the_line_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    meter = Meter(LARGE)
    meter.update(LARGE // 4)
    assert " 25% [" in terminal.getvalue()
    meter.clear()
    assert terminal.getvalue().endswith("\r\x1b[K")


@cases(("size", "stderr"), [(1000, Terminal()), (None, Terminal()), (LARGE, io.StringIO())])
def test_small_files_pipes_and_redirections_show_nothing(
    monkeypatch: pytest.MonkeyPatch, size: int | None, stderr: io.StringIO
) -> None:
    monkeypatch.setattr("sys.stderr", stderr)
    meter = Meter(size)
    meter.update(500)
    meter.clear()
    assert stderr.getvalue() == ""
