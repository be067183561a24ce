"""Whatever text a record, a label or an exception brings into the log, it forges no line and hides none."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from tests.offenders import assert_none
from trainwarden.service_log import LOG_FORMAT, FieldsFormatter, LineFormatter

OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ")
FORGED = "2026-01-01 00:00:00,000 INFO trainwarden_exporter.cli: run_state_changed run_id=bob new=failed"
LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]

# Below no other logger: pytest would put the lone surrogates into a report, which could not be sent between processes.
LOGGER = logging.Logger("service")  # noqa: LOG001  # see above


@contextlib.contextmanager
def written_by(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    """Yield what the service writes to standard error."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    LOGGER.addHandler(handler)
    yield stream
    LOGGER.removeHandler(handler)


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """What the service writes to standard error."""
    with written_by(LineFormatter(LOG_FORMAT)) as stream:
        yield stream


def test_a_text_cannot_begin_a_line_of_the_log(output: io.StringIO) -> None:
    for end in LINE_ENDS:
        LOGGER.warning("checkpoint %s is incomplete", f"/data{end}{FORGED}")
    lines = output.getvalue().splitlines()
    assert len(lines) == len(LINE_ENDS)
    assert_none(line for line in lines if not OURS.match(line))


def test_fields_follow_the_text_in_either_format(output: io.StringIO) -> None:
    fields = {"incident": "1a", "run_id": f"x y\n{FORGED}", "attempt": 3, "job_id": None}
    LOGGER.warning("restart", extra={"fields": fields})
    (line,) = output.getvalue().splitlines()
    assert line.partition(" WARNING service: ")[2].startswith('restart [incident=1a run_id="x y\\n2026')
    assert line.endswith(" attempt=3]")
    with written_by(FieldsFormatter("json")) as stream:
        LOGGER.warning("restart", extra={"fields": fields})
    shown = json.loads(stream.getvalue())
    assert (shown["msg"], shown["incident"], shown["attempt"]) == ("restart", "1a", "3")
    assert "job_id" not in shown


def test_a_terminal_escape_is_shown_as_text(output: io.StringIO) -> None:
    LOGGER.warning("%s", "\x1b[2K\x1b[1A\x08 gone \u202e reversed \udc80")
    assert output.getvalue().rstrip("\n").isprintable()
    assert r"\x1b[2K\x1b[1A\x08 gone \u202e reversed \udc80" in output.getvalue()


def test_the_lines_of_a_traceback_are_no_lines_of_the_log(output: io.StringIO) -> None:
    try:
        raise ValueError(f"bad\n{FORGED}\r{FORGED}")
    except ValueError:
        LOGGER.exception("could not be read")
    first, *others = output.getvalue().rstrip("\n").split("\n")
    assert OURS.match(first)
    assert others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_text_that_prints_stays_as_it_is(output: io.StringIO) -> None:
    LOGGER.warning("Größe 模型 🙂 %s", r"C:\new")
    assert output.getvalue().endswith("Größe 模型 🙂 C:\\new\n")


@pytest.fixture(params=["json", "logfmt"])
def fields(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What the service writes to standard error as fields."""
    with written_by(FieldsFormatter(request.param)) as stream:
        yield stream


def fields_of(line: str) -> dict[str, str]:
    """Read a line of JSON or of logfmt."""
    if line.startswith("{"):
        return dict(json.loads(line))
    found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)(?: |$)', line)
    return {name: json.loads(text) if text.startswith('"') else text for name, text in found}


TEXTS = [*LINE_ENDS, '"', '" level="ERROR', "\\", "", "a=b", "plain", "\x1b[2K", "模型\udc80"]


def test_fields_hold_every_text_on_one_line(fields: io.StringIO) -> None:
    for text in TEXTS:
        LOGGER.warning("%s", text)
    lines = fields.getvalue().removesuffix("\n").split("\n")
    assert_none(repr(line) for line in lines if not line.isprintable())
    found = [fields_of(line) for line in lines]
    assert [each["msg"] for each in found] == TEXTS
    for each in found:
        assert list(each) == ["time", "level", "logger", "msg"]
        assert (each["level"], each["logger"]) == ("WARNING", "service")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"])


def test_a_traceback_is_a_field(fields: io.StringIO) -> None:
    try:
        raise ValueError(f"bad\n{FORGED}")
    except ValueError:
        LOGGER.exception("could not be read")
    (line,) = fields.getvalue().splitlines()
    assert fields_of(line)["exception"].endswith(f"ValueError: bad\n{FORGED}")
