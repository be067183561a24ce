"""What the library's tests share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.job_variables import remove_job_variables
from tests.unit.library.processes import Script, Starter


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may itself be a job of some scheduler."""
    remove_job_variables(monkeypatch)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    scripts = Script(tmp_path / "runs")
    yield scripts
    scripts.clean_up()


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starter:
    """Starts an attempt of the run "r" under the key of a given generation."""
    # A worker of a test run that is split has no program's name.
    monkeypatch.setattr("sys.argv", ["/jobs/train.py"])

    def start(generation: int = 0, **options: Any) -> trainwarden.Run:
        monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", f"local:5:{generation}")
        return trainwarden.run("r", dir=tmp_path, **options)

    return start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "r"
