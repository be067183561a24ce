"""Tests with the real frameworks, on the CPU; `make test-integrations` runs them in an environment of their own."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.programs import Programs
from trainwarden.training.recorder import RecordThread

os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The frameworks warn of each other, and of what they will change; the library must give no reason to.
        item.add_marker(pytest.mark.filterwarnings("ignore", r"error:::trainwarden\."))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may itself be a job of some scheduler."""
    launchers = ("TRAINWARDEN_", "SLURM_", "OMPI_", "PMI", "PALS_", "FLUX_", "MASTER_", "TORCHELASTIC_")
    said = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "STALE_MINUTES"}
    for name in list(os.environ):
        if name.startswith(launchers) or name in said:
            monkeypatch.delenv(name)


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Lets what follows be the attempt of a given generation of the run "r", recorded in `<tmp>/runs`."""

    def begin(generation: int) -> None:
        monkeypatch.setenv("TRAINWARDEN_RUN_ID", "r")
        monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(tmp_path / "runs"))
        monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", f"local:5:{generation}")

    begin(0)
    return begin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r"


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    started = Programs(tmp_path / "runs")
    yield started
    started.clean_up()


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases that the run goes through, in order; the record itself holds only those that last."""
    seen: list[str] = []
    enter = RecordThread.enter_phase

    def enter_and_keep(recorder: RecordThread, name: str) -> None:
        seen.append(name)
        enter(recorder, name)

    monkeypatch.setattr(RecordThread, "enter_phase", enter_and_keep)
    return seen
