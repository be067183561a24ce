"""`trainwarden top`: runs and nodes in a table, live in a real terminal, and once without one."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.runs.records import NOW, foreign_run
from tests.waiting import wait_until
from trainwarden import cli
from trainwarden.top import fitting


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STALE_MINUTES", raising=False)
    monkeypatch.setattr("time.time", lambda: NOW)
    foreign_run(tmp_path, run_id="well")
    foreign_run(tmp_path, run_id="silent", age=700, progress_age=700)
    done = foreign_run(tmp_path, run_id="done", age=100, progress_age=100)
    (done / "_complete").touch()
    old = foreign_run(tmp_path, run_id="old", age=200_000, progress_age=200_000)
    (old / "_complete").touch()
    return tmp_path


def test_those_that_need_a_person_come_first_and_old_ones_are_left_out(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["top", "--once", "--runs-dir", str(runs)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["RUN", "silent", "well", "done"]
    assert "Both heartbeats stale (>10m)" in lines[1]
    cli.main(["top", "--json", "--all", "--runs-dir", str(runs)])
    document = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in document["runs"]] == ["silent", "well", "done", "old"]


def test_all_well_is_status_0_and_a_prometheus_without_answer_is_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    foreign_run(tmp_path)
    argv = ["top", "--once", "--runs-dir", str(tmp_path)]
    assert cli.main(argv) == 0
    assert cli.main([*argv, "--prometheus", "http://127.0.0.1:1"]) == 3
    assert "Prometheus is unreachable" in capsys.readouterr().err


def test_without_rich_the_live_table_says_what_brings_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.top.find_spec", lambda _name: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit) as end:
        cli.main(["top", "--runs-dir", str(tmp_path)])
    assert end.value.code == 2
    assert "trainwarden[top]" in capsys.readouterr().err


@pytest.mark.process
def test_in_a_terminal_the_table_follows_the_records_until_it_is_interrupted(tmp_path: Path) -> None:
    age = NOW - time.time()
    folder = foreign_run(tmp_path, run_id="live", age=age, progress_age=age)
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    command = [sys.executable, "-m", "trainwarden", "top", "--runs-dir", str(tmp_path), "--interval", "0.2"]
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True)
    os.close(end)
    seen = b""

    def shows(words: bytes) -> bool:
        nonlocal seen
        if select.select([terminal], [], [], 0.05)[0]:
            # Once the process has ended, to read is an error.
            with contextlib.suppress(OSError):
                seen += os.read(terminal, 65536)
        return words in seen

    try:
        wait_until(lambda: shows(b"RUNNING"), lambda: str(seen))
        (folder / "_error").write_text("CUDA out of memory [red]\x1b[5m")
        wait_until(lambda: shows(b"CUDA out of memory [red]"), lambda: str(seen))
        assert b"\x1b[5m" not in seen
    finally:
        process.send_signal(signal.SIGINT)
        # Read on, or the process may wait for its terminal.
        wait_until(lambda: shows(b"\0never") or process.poll() is not None)
        os.close(terminal)
    assert process.returncode == 130


def test_a_narrow_window_shows_fewer_columns_and_cuts_none() -> None:
    columns = ("RUN", "STATUS", "STEP", "LOSS", "REASON")
    rows = [
        ("mistral-20250804-171621", "FAILED", "1500/5000", "2.134", "Error: " + "x" * 50),
        ("a", "RUNNING", "-", "-", ""),
    ]
    for width, names in ((100, columns), (60, ("RUN", "STATUS", "STEP", "REASON")), (45, ("RUN", "STATUS", "STEP"))):
        assert tuple(columns[number] for number in fitting(columns, rows, width)) == names
