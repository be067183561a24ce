"""What the users of the fine-tuning module have: jobs that have ended, models, servers of metrics."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.finetuning_metrics.jobs import FinishedJob, Start, started
from tests.job_variables import remove_job_variables


@pytest.fixture(autouse=True)
def plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a pod, or a job of some scheduler; its user has servers too."""
    remove_job_variables(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FinishedJob:
    """A job that ended well, in the working folder of the test."""
    monkeypatch.chdir(tmp_path)
    return FinishedJob(tmp_path)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that ends with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield lambda command, **environment: started(command, processes, environment)
    for process in processes:
        process.kill()
        process.communicate()
