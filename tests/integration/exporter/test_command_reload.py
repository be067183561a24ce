"""SIGHUP: the configuration is read again, and only what it concerns changes."""

from __future__ import annotations

import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.exporter.running import Started
from tests.waiting import wait_until

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


def test_collectors_come_go_and_change_while_the_others_go_on(
    start: Start, runs: Path, tmp_path: Path, file: Path
) -> None:
    file.write_text(config(runs, tmp_path / "state", "  clock: true\n"))
    started = start(f"--config.file={file}")
    wait_until(lambda: started.value('trainwarden_collector_success{collector="logs"}') == 1)
    wait_until(lambda: started.value('trainwarden_collector_success{collector="clock"}') == 1)
    assert started.value('trainwarden_config_last_reload_successful{file="config"}') == 1
    # The state folder of the logs stays the same: who comes next must get its lock from who was there.
    changed = config(runs, tmp_path / "state", "  process: true\n")
    file.write_text(changed.replace("interval: 100ms, state", "interval: 50ms, state"))
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('trainwarden_collector_success{collector="process"}') == 1)
    wait_until(lambda: started.value('trainwarden_collector_success{collector="logs"}') == 1)
    wait_until(lambda: started.value('trainwarden_collector_success{collector="clock"}') is None)
    wait_until(lambda: started.value('training_step{run_id="one"}') == 3)
    assert "configuration read again: started process; changed logs; stopped clock" in started.end()


def test_what_is_not_concerned_is_not_even_sampled_anew(start: Start, runs: Path, tmp_path: Path, file: Path) -> None:
    file.write_text(f"collector: {{disable-defaults: true, runs: {{enabled: true, path: {runs}, interval: 1h}}}}\n")
    started = start(f"--config.file={file}")
    last = 'trainwarden_collector_last_success_timestamp_seconds{collector="runs"}'
    wait_until(lambda: started.value(last))
    before = started.value(last)
    file.write_text(file.read_text() + "collector.clock: true\n")
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('trainwarden_collector_success{collector="clock"}') == 1)
    assert started.value(last) == before
    assert started.value('training_step{run_id="one"}') == 3


@pytest.mark.parametrize(
    "wrong",
    [
        "collector: {runs: [}",
        "collector.rums: true\n",
        "collector.disable-defaults: true\n",
        "collector.logs.signals: /nonexistent/pack.yml\n",
        "path.sysfs: /nonexistent\n",
        f"collector.runs.path: /{'x' * 300}\n",
    ],
)
def test_a_wrong_file_changes_nothing_and_is_shown(
    start: Start, runs: Path, tmp_path: Path, file: Path, wrong: str
) -> None:
    good = config(runs, tmp_path / "state")
    file.write_text(good)
    started = start(f"--config.file={file}")
    wait_until(lambda: started.value('trainwarden_collector_success{collector="logs"}') == 1)
    file.write_text(good + wrong if "logs" in wrong or "sysfs" in wrong else wrong)
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('trainwarden_config_last_reload_successful{file="config"}') == 0)
    last = 'trainwarden_collector_last_success_timestamp_seconds{collector="logs"}'
    before = started.value(last) or 0.0
    wait_until(lambda: (started.value(last) or 0.0) > before)
    assert started.value('training_step{run_id="one"}') == 3
    file.write_text(good)
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('trainwarden_config_last_reload_successful{file="config"}') == 1)
    errors = started.end()
    (line,) = [line for line in errors.splitlines() if " ERROR " in line]
    assert "what held before still holds" in line
    assert "Traceback" not in errors


def test_what_takes_a_restart_is_said(start: Start, runs: Path, tmp_path: Path, file: Path) -> None:
    file.write_text(config(runs, tmp_path / "state"))
    started = start(f"--config.file={file}")
    file.write_text(config(runs, tmp_path / "state", "web.telemetry-path: /other\n"))
    for _ in range(2):
        started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('trainwarden_config_last_reload_successful{file="config"}') == 1)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{started.address}/other", timeout=30)
    assert "--web.telemetry-path is another now, which takes a restart" in started.end()


def test_without_a_file_sighup_does_no_harm(start: Start, runs: Path) -> None:
    started = start("--collector.disable-defaults", "--collector.runs", f"--collector.runs.path={runs}")
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value('training_step{run_id="one"}') == 3)
    assert started.value('trainwarden_config_last_reload_successful{file="config"}') is None
    assert "no collector changed" in started.end()


def test_check_config_ends_with_0_or_2(file: Path, runs: Path, tmp_path: Path) -> None:
    command = [*Started.COMMAND, "check-config", str(file)]
    file.write_text(config(runs, tmp_path / "state"))
    good = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (good.returncode, good.stdout, good.stderr) == (0, f"{file}: right; here it runs runs, logs\n", "")
    file.write_text("collector.runs.interval: soon\n")
    wrong = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    (line,) = wrong.stderr.splitlines()
    assert all(word in line for word in (str(file), "line 1", "collector.runs.interval", "'soon'", "expected"))
    assert subprocess.run(command[:-1], check=False, capture_output=True, timeout=60).returncode == 2
