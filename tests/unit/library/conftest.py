"""Real processes that use the library, and waiting for what they do."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_DEADLINE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """The machine that runs the tests may itself be a job of some scheduler."""
    for name in list(os.environ):
        if name.startswith(("TRAINWARDEN_", "SLURM_", "OMPI_")) or name in {"RANK", "WORLD_SIZE", "STALE_MINUTES"}:
            monkeypatch.delenv(name)


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def eventually():
    """Returns as soon as a condition holds; fails when it has not for long."""
    return _wait_for


class Script:
    """Python code that runs in a process of its own, with `<runs>` in the test's own folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._started: list[subprocess.Popen[str]] = []

    def start(self, code: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "TRAINWARDEN_RUNS_DIR": str(self.runs), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(code, **environment)
        out, err = process.communicate(timeout=_DEADLINE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def read(self, name: str, run_id: str = "r") -> dict[str, object]:
        return json.loads((self.runs / run_id / name).read_text())


@pytest.fixture
def script(tmp_path):
    scripts = Script(tmp_path / "runs")
    yield scripts
    scripts.clean_up()
