"""What the library's tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.library.processes import Script


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may itself be a job of some scheduler."""
    said = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "STALE_MINUTES"}
    for name in list(os.environ):
        if name.startswith(("TRAINWARDEN_", "SLURM_", "OMPI_")) or name in said:
            monkeypatch.delenv(name)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    scripts = Script(tmp_path / "runs")
    yield scripts
    scripts.clean_up()
