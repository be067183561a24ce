"""Servers and exporters that end with their test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exporter.running import Started
from tests.integration.exporter.serving import Serving
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(**options: Any) -> Serving:
        started.append(Serving(**options))
        return started[-1]

    yield start
    for one in started:
        one.collector.go.set()
        one.server.stop(grace_seconds=0.0)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A runs folder with one running run that any host's exporter tells of."""
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    now = to_iso(time.time())
    write_json(
        folder / "metadata.json", {"run_id": "one", "status": "running", "phase": "training", "last_update": now}
    )
    write_json(folder / "progress.json", {"step": 3, "last_updated": now})
    return tmp_path / "runs"


@pytest.fixture
def start_exporter(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Starts an exporter on a free port, with the flags it is called with."""
    processes: list[subprocess.Popen[str]] = []

    def run(*flags: str) -> Started:
        port_file = tmp_path / f"port{len(processes)}"
        command = [*Started.COMMAND, "--web.listen-address=127.0.0.1:0", f"--web.port-file={port_file}", *flags]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        wait_until(lambda: port_file.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        return Started(process, port_file.read_text().strip())

    yield run
    for process in processes:
        process.kill()
        process.communicate()
