"""Scripts that serve their own metrics, scraped to their end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.process

_BLOCK = """
import logging, pathlib, sys, time
from trainwarden_exporter import MetricsExporter
logging.basicConfig(level=logging.INFO)
with MetricsExporter(port=0, job_name="tune", model_id="m", method="lora") as metrics:
    metrics.update_job_status("Running")
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
    {end}
print("over", file=sys.stderr)
"""
_PLAIN = """
import logging, pathlib, sys, time
from trainwarden_exporter import FineTuningMetricsExporter
logging.basicConfig(level=logging.INFO)
exporter = FineTuningMetricsExporter(port=0)
exporter.start_server()
exporter.update_job_status("tune", "m", "lora", "Running")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
{end}
"""
_STATUS = r'finetuning_job_status\{job_name="tune",model_id="m",method="lora"\} (\d)\.0'
Start = Callable[[str, str], tuple["subprocess.Popen[bytes]", str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script; returns the process and the address of its metrics. It goes on once the file `go` exists."""
    started: list[subprocess.Popen[bytes]] = []

    def run(script: str, end: str) -> tuple[subprocess.Popen[bytes], str]:
        log = tmp_path / "log"
        (tmp_path / "script.py").write_text(script.format(end=end))
        command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "go")]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stderr=output, env={**os.environ})
        started.append(process)
        served = wait_until(lambda: re.search(r"serving /metrics on (\S+)", log.read_text()))
        return process, served[1].replace("0.0.0.0", "127.0.0.1").replace("[::]", "127.0.0.1")

    yield run
    for process in started:
        process.kill()
        process.wait()


def status(address: str) -> str | None:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        found = re.search(_STATUS, response.read().decode())
    return found[1] if found else None


@pytest.mark.parametrize(
    ("script", "end", "shown", "code"),
    [
        (_BLOCK, 'metrics.update_job_status("Succeeded")', "2", 0),
        (_BLOCK, "pass", "2", 0),
        (_BLOCK, 'raise RuntimeError("CUDA out of memory")', "3", 1),
        (_BLOCK, "sys.exit(3)", "3", 3),
        (_PLAIN, 'exporter.update_job_status("tune", "m", "lora", "Succeeded")', "2", 0),
        (_PLAIN, 'raise RuntimeError("CUDA out of memory")', "3", 1),
    ],
)
def test_the_end_is_shown_to_a_scrape_and_then_the_process_ends(
    start: Start, tmp_path: Path, script: str, end: str, shown: str, code: int
) -> None:
    process, address = start(script, end)
    assert status(address) == "1"
    (tmp_path / "go").touch()
    wait_until(lambda: status(address) == shown)
    assert process.wait(30) == code


def test_where_nobody_scrapes_nobody_is_waited_for(start: Start, tmp_path: Path) -> None:
    process, _ = start(_BLOCK, "pass")
    (tmp_path / "go").touch()
    assert process.wait(30) == 0


def test_a_scraper_that_is_gone_is_not_waited_for_without_end(start: Start, tmp_path: Path) -> None:
    process, address = start(_BLOCK, "pass")
    for _ in range(2):
        assert status(address) == "1"
    (tmp_path / "go").touch()
    assert process.wait(30) == 0
