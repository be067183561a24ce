"""The `trainwarden` command."""

import importlib.metadata
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import NoReturn

import pytest

import trainwarden
from tests.cases import cases
from trainwarden import cli
from trainwarden.identity import host_name
from trainwarden.record.folder import write_json
from trainwarden.record.store import RecordStore
from trainwarden.taxonomy import FAILURES


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"trainwarden {trainwarden.__version__}\n"


def test_up_gets_everything_after_its_name_and_its_status_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    fake = types.ModuleType("trainwarden.stack.up")

    def up(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    monkeypatch.setattr(fake, "main", up, raising=False)
    monkeypatch.setitem(sys.modules, "trainwarden.stack.up", fake)
    argv = ["up", "--run-id", "x", "--", "python", "t.py", "--", "--help"]
    assert cli.main(argv) == 7
    assert seen == [argv[1:]]


@cases(
    ("command", "missing", "extra"),
    [
        ("up", "prometheus_client", "stack"),
        ("up", "yaml", "stack"),
        ("scan", "yaml", "exporter"),
        ("scan", "ahocorasick_rs._native", "exporter"),
        ("checkpoints", "boto3", "s3"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    capsys: pytest.CaptureFixture[str], command: str, missing: str, extra: str
) -> None:
    def load(_name: str) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    assert cli.main([command], load) == 2
    package = missing.partition(".")[0]
    said = f"trainwarden {command}: {package} is not installed; pip install 'trainwarden[{extra}]' brings it\n"
    assert capsys.readouterr().err == said


@cases(
    "error",
    [
        ModuleNotFoundError("No module named 'trainwarden.stack'", name="trainwarden.stack"),
        ModuleNotFoundError("No module named '_sqlite3'", name="_sqlite3"),
        ImportError("cannot import name 'x' from 'yaml'", name="yaml"),
    ],
    ids=["our own", "of Python", "too old"],
)
def test_what_no_extra_brings_is_not_listed_under_one(capsys: pytest.CaptureFixture[str], error: ImportError) -> None:
    def load(_name: str) -> NoReturn:
        raise error

    assert cli.main(["up"], load) == 2
    said = capsys.readouterr().err
    assert "pip install" not in said and str(error.name) in said


@cases("argv", [[], ["no-such-command"], ["--no-such-option"]])
def test_misuse_is_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = cli.main(argv)
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == 2
    assert capsys.readouterr().err


def test_other_names_are_looked_up_among_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = types.SimpleNamespace(load=lambda: len)

    def entry_points(*, group: str, name: str) -> list[types.SimpleNamespace]:
        return [entry] if (group, name) == ("trainwarden.commands", "added") else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert cli.main(["added", "a", "b", "c"]) == 3


def test_help_lists_what_is_installed_beside_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("commands:")[2].splitlines() if line]
    assert {"up", "scan", "metrics-server"} <= set(listed)


def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_argv: list[str]) -> int:
        raise KeyboardInterrupt

    fake = types.ModuleType("trainwarden.stack.up")
    monkeypatch.setattr(fake, "main", interrupted, raising=False)
    monkeypatch.setitem(sys.modules, "trainwarden.stack.up", fake)
    assert cli.main(["up"]) == 130


def test_runs_are_listed_with_what_their_records_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("broken", "failed", "foreign"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "metadata.json").write_text("{")
    write_json(tmp_path / "foreign" / "metadata.json", {"status": "running", "phase": "training", "attempt": 2})
    write_json(tmp_path / "foreign" / "progress.json", {"step": 5, "total_steps": 9})
    RecordStore(tmp_path / "failed").record_failure(key="local:1:0", failure=FAILURES["killed"], message="a\x1b[31mb")
    assert cli.main(["runs", "--runs-dir", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:2] == ["broken", "unknown"]
    assert lines[2][:2] == ["failed", "failed"]
    assert "\x1b" not in json.dumps(lines, ensure_ascii=False)
    assert lines[3][:5] == ["foreign", "running", "train", "2", "5/9"]


def test_a_folder_without_records_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "--runs-dir", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert str(tmp_path) in told.err
    assert told.out.split()[0] == "RUN"


@pytest.mark.process
def test_a_running_record_whose_process_is_gone_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = host_name()
    for name, host, pid, status in (
        ("elsewhere", "another-host", gone.pid, "running"),
        ("ended", here, gone.pid, "cancelled"),
        ("gone", here, gone.pid, "running"),
        ("living", here, os.getpid(), "running"),
    ):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "metadata.json", {"status": status, "phase": "train", "host": host, "pid": pid})
    assert cli.main(["runs", "--runs-dir", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines() if line.endswith("process gone")] == ["gone"]
    assert told.err == ""


def test_a_long_message_is_cut_where_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r").mkdir()
    write_json(tmp_path / "r" / "metadata.json", {"run_id": "r", "status": "cancelled", "reason": "x" * 61})
    assert cli.main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("x" * 59 + "…\n")


@cases(
    ("argv", "line"),
    [
        (["run"], "trainwarden: there is no command 'run'; expected runs?"),
        (
            ["up", "--stal-seconds", "3"],
            "trainwarden up: unrecognized arguments: --stal-seconds, expected --stall",
        ),
        (
            ["scan", "--bogus", "x"],
            "trainwarden scan: unrecognized arguments: --bogus; `trainwarden scan --help`",
        ),
        (["checkpoints"], "trainwarden checkpoints: the following arguments are required: PATH"),
    ],
)
def test_misuse_is_one_line_that_names_what_was_expected(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    error = capsys.readouterr().err
    assert (end.value.code, error.count("\n")) == (2, 1)
    assert error.startswith(line)


def test_a_runs_folder_that_is_not_there_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["runs", "--runs-dir", str(tmp_path / "absent")])
    assert end.value.code == 2
    assert str(tmp_path / "absent") in capsys.readouterr().err


def test_folders_without_a_record_hint_at_a_place_that_is_too_high(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "r1").mkdir(parents=True)
    assert cli.main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err.startswith(f"{tmp_path}: none of its folders holds a run record; expected")
    write_json(tmp_path / "runs" / "r1" / "metadata.json", {"status": "pending"})
    assert cli.main(["runs", "--runs-dir", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().err == ""
