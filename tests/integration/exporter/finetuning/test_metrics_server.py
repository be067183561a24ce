"""The sidecar, and the exporter with --compat.finetuning, as processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json

COMMAND = [sys.executable, "-m", "trainwarden", "metrics-server"]
JOB = ("--job-name=tune", "--model-id=Qwen/Qwen2.5-7B-Instruct", "--method=lora")
LABELS = 'job_name="tune",model_id="Qwen/Qwen2.5-7B-Instruct",method="lora"'

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a metrics server on a free port; returns the process and its address."""
    processes: list[subprocess.Popen[str]] = []

    def run(*flags: str) -> tuple[subprocess.Popen[str], str]:
        log = tmp_path / f"log{len(processes)}"
        command = [*COMMAND, *JOB, "--port=0", "--interval=50ms", "--no-gpus", *flags]
        with log.open("w") as output:
            # The user of the machine may have servers too, whose state this one must not share.
            environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
            process = subprocess.Popen(command, stderr=output, text=True, env=environment)
        processes.append(process)
        wait_until(lambda: "serving" in log.read_text() or process.poll() is not None)
        found = re.search(r"serving /metrics on (\S+)", log.read_text())
        assert found, log.read_text()
        return process, found[1]

    yield run
    for process in processes:
        process.kill()
        process.wait()


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        return str(response.read().decode())


def test_it_listens_on_loopback_alone_unless_reported_or_in_a_pod(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    _, address = start()
    assert not address.startswith("127.0.0.1:")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    _, address = start()
    assert address.startswith("127.0.0.1:")
    _, elsewhere = start("--listen-address=127.0.0.2")
    assert elsewhere.startswith("127.0.0.2:")
    wait_until(lambda: "finetuning_job_status" in page(elsewhere))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly(start: Start, tmp_path: Path, number: signal.Signals, status: int) -> None:
    process, _ = start(f"--training-info={tmp_path / 'none.json'}")
    process.send_signal(number)
    assert process.wait(30) == status
    assert "Traceback" not in (tmp_path / "log0").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [(("--port=http",), "'http' is no port"), ((), "--job-name"), (("--interval=0",), "'0' is no duration")],
)
def test_misuse_is_one_line_and_status_2(flags: tuple[str, ...], message: str) -> None:
    given = [*COMMAND, *(JOB if flags else ()), *flags]
    ended = subprocess.run(given, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_busy_port_is_misuse_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = [*COMMAND, *JOB, f"--port={port}", "--no-gpus"]
        ended = subprocess.run(given, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert f"127.0.0.1:{port}" in ended.stderr


def test_the_exporter_shows_runs_by_their_known_names_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    now = to_iso(time.time())
    metadata = {"run_id": "one", "status": "running", "last_update": now, "model": "m", "method": "lora"}
    write_json(folder / "metadata.json", metadata)
    write_json(folder / "progress.json", {"step": 3, "total_steps": 4, "last_updated": now})
    base = [sys.executable, "-m", "trainwarden_exporter", "--once", "--collector.disable-defaults"]
    environment = {**os.environ, "TRAINWARDEN_RUNS_DIR": str(tmp_path / "runs")}

    def once(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*base, *flags], capture_output=True, text=True, check=False, timeout=60, env=environment
        )  # fmt: skip

    shown = once("--collector.runs", "--compat.finetuning").stdout
    assert 'finetuning_training_progress{job_name="one",model_id="m",method="lora"} 75.0' in shown
    assert 'trainwarden_collector_success{collector="finetuning"} 1.0' in shown
    assert "finetuning" not in once("--collector.runs").stdout
    refused = once("--collector.clock", "--compat.finetuning")
    assert (refused.returncode, "--collector.runs" in refused.stderr) == (2, True)
