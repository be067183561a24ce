"""Commands under `trainwarden exec`, in processes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.exec.running import Exec
from tests.job_variables import remove_job_variables


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a job of some scheduler."""
    remove_job_variables(monkeypatch)


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[Exec]:
    processes = Exec(tmp_path / "runs")
    yield processes
    processes.clean_up()
