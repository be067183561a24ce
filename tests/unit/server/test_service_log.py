"""Whatever text a record, a label or an exception brings into the log, it forges no line and hides none."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from trainwarden.service_log import LOG_FORMAT, LineFormatter

OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ")
FORGED = "2026-01-01 00:00:00,000 INFO trainwarden_exporter.cli: run_state_changed run_id=bob new=failed"
LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """What the service writes to standard error."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


@pytest.mark.parametrize("end", LINE_ENDS, ids=ascii)
def test_a_text_cannot_begin_a_line_of_the_log(output: io.StringIO, end: str) -> None:
    logging.getLogger("service").warning("checkpoint %s is incomplete", f"/data{end}{FORGED}")
    (line,) = output.getvalue().splitlines()
    assert OURS.match(line)


def test_a_terminal_escape_is_shown_as_text(output: io.StringIO) -> None:
    logging.getLogger("service").warning("%s", "\x1b[2K\x1b[1A\x08 gone \u202e reversed \udc80")
    assert output.getvalue().rstrip("\n").isprintable()
    assert r"\x1b[2K\x1b[1A\x08 gone \u202e reversed \udc80" in output.getvalue()


def test_the_lines_of_a_traceback_are_no_lines_of_the_log(output: io.StringIO) -> None:
    try:
        raise ValueError(f"bad\n{FORGED}\r{FORGED}")
    except ValueError:
        logging.getLogger("service").exception("could not be read")
    first, *others = output.getvalue().rstrip("\n").split("\n")
    assert OURS.match(first)
    assert others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_text_that_prints_stays_as_it_is(output: io.StringIO) -> None:
    logging.getLogger("service").warning("Größe 模型 🙂 %s", r"C:\new")
    assert output.getvalue().endswith("Größe 模型 🙂 C:\\new\n")
