"""A wrong value is named together with its flag and what was expected."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cases import cases
from trainwarden_exporter.flags import build_parser


@cases(
    ("text", "expected"),
    [(":9745", ("", 9745)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("node.x:1", ("node.x", 1))],
)
def test_an_address_is_host_and_port(text: str, expected: Any) -> None:
    assert vars(build_parser().parse_args([f"--web.listen-address={text}"]))["web.listen_address"] == [expected]


@cases(("text", "seconds"), [("2", 2), ("2s", 2), ("500ms", 0.5), ("1m", 60), ("0.5s", 0.5)])
def test_a_duration_may_have_a_unit(text: str, seconds: float) -> None:
    assert vars(build_parser().parse_args([f"--collector.runs.interval={text}"]))["collector.runs.interval"] == seconds


@cases(
    ("flag", "value"),
    [
        ("--web.listen-address", "9745"),
        ("--web.listen-address", "::1:9745"),
        ("--web.listen-address", ":70000"),
        ("--web.listen-address", ":"),
        ("--web.telemetry-path", "metrics"),
        ("--web.telemetry-path", "/"),
        ("--web.telemetry-path", "/-/ready"),
        ("--web.telemetry-path", '/"><script>'),
        ("--web.max-requests", "0"),
        ("--collector.runs.interval", "0"),
        ("--collector.runs.interval", "soon"),
        ("--collector.runs.timeout", "-1s"),
        ("--collector.runs.max", "many"),
        ("--collector.runs.scope", "some"),
        ("--log.level", "loud"),
        ("--instance-host", ""),
        ("--collector.runs.path", ""),
        ("--collector.logs.root", " "),
        ("--path.state", ""),
        ("--config.file", ""),
    ],
)
def test_a_wrong_value_ends_with_status_2_and_one_line(
    flag: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([f"{flag}={value}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert flag in line
    assert repr(value) in line
    assert "expected" in line or "choose from" in line


def test_a_flag_is_not_guessed_from_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--collector.runs.p", "/x"])
    assert "--collector.runs.p" in capsys.readouterr().err


def test_a_flag_that_there_is_not_is_answered_by_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--collector.nvida", "--collector.efa"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("--collector.nvida, expected --collector.nvidia?")
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--zzz=1"])
    assert "expected" not in capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What the help prints."""
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(argv)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_help_fits_a_screen_and_names_flags_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help")
    assert text == shown(capsys, "-h")
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    known = {option for flag in build_parser().flags() for option in flag.option_strings}
    named = re.findall(r"^  (--[\w.-]+)", text, re.MULTILINE)
    assert len(named) > 20
    assert set(named) <= known


def test_the_help_of_a_group_has_all_its_flags_and_that_of_all_every_one(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("runs", "gpu-jobs", "gpu_jobs", "web"):
        text = shown(capsys, f"--help={name}")
        begins = "--web." if name == "web" else f"--collector.{name.replace('_', '-')}"
        named = set(re.findall(r"^  (--[\w.-]+)", text, re.MULTILINE))
        of_group = {
            each.option_strings[0] for each in build_parser().flags() if each.option_strings[0].startswith(begins)
        }
        assert named == of_group
    everything = shown(capsys, "--help-all")
    for flag in build_parser().flags():
        assert f"  {flag.option_strings[0]}" in everything


def test_a_group_that_there_is_not_is_answered_by_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["--help=runns"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'runns', expected one of general, web" in line
