"""SIGHUP: the configuration is read again, and nothing that was counted is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.exporter.running import Started
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json

Start = Callable[..., Started]


@pytest.fixture
def start(start_exporter: Start) -> Start:
    return start_exporter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "exporter.yml"


def config(runs: Path, state: Path, more: str = "") -> str:
    return (
        f"collector:\n  disable-defaults: true\n  runs: {{enabled: true, interval: 100ms, path: {runs}}}\n"
        f"  logs: {{enabled: true, interval: 100ms, state: {state}}}\n{more}"
    )


def test_a_changed_file_is_read_and_no_collector_loses_what_it_counted(
    start: Start, runs: Path, tmp_path: Path, file: Path
) -> None:
    good = config(runs, tmp_path / "state")
    file.write_text(good)
    started = start(f"--config.file={file}")
    successful = 'trainwarden_config_last_reload_successful{file="config"}'
    wait_until(lambda: started.value('trainwarden_collector_success{collector="logs"}') == 1)
    assert started.value(successful) == 1
    ended = 'training_run_duration_seconds_count{state="failed"}'
    now = to_iso(time.time())
    write_json(
        runs / "one" / "metadata.json",
        {"run_id": "one", "status": "failed", "start_time": now, "end_time": now, "last_update": now},
    )
    wait_until(lambda: started.value(ended) == 1)
    for text in (good + "  clock: true\n", "collector: {runs: [}"):
        file.write_text(text)
        started.process.send_signal(signal.SIGHUP)
        wait_until(lambda: started.value(successful) == 0)
        assert started.value(ended) == 1
        assert started.value('trainwarden_collector_success{collector="clock"}') is None
        file.write_text(good + "log.level: debug\n")
        started.process.send_signal(signal.SIGHUP)
        wait_until(lambda: started.value(successful) == 1)
    errors = started.end()
    assert "these take a restart: --collector.clock" in errors
    assert "what held before still holds" in errors
    assert "Traceback" not in errors


def test_without_a_file_sighup_does_no_harm(start: Start, runs: Path) -> None:
    started = start("--collector.disable-defaults", "--collector.runs", f"--collector.runs.path={runs}")
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('training_step{run_id="one"}') == 3)
    assert started.value('trainwarden_config_last_reload_successful{file="config"}') is None
    assert "configuration read again" in started.end()


def test_check_config_ends_with_0_or_2(file: Path, runs: Path, tmp_path: Path) -> None:
    command = [*Started.COMMAND, "check-config", str(file)]
    file.write_text(config(runs, tmp_path / "state"))
    good = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    right = f"{file}: right; collectors that run here: runs, logs\n"
    assert (good.returncode, good.stdout, good.stderr) == (0, right, "")
    file.write_text("collector.runs.interval: soon\n")
    wrong = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    (line,) = wrong.stderr.splitlines()
    assert all(word in line for word in (str(file), "line 1", "collector.runs.interval", "'soon'", "expected"))
    assert subprocess.run(command[:-1], check=False, capture_output=True, timeout=60).returncode == 2
