"""Commands under `trainwarden exec`, in processes of their own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.exec.running import Exec

_SAYING = ("TRAINWARDEN_", "SLURM_", "OMPI_", "RAY_", "TORCHELASTIC_", "KUBERNETES_", "MODAL_", "AWS_", "MONITORING_")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a job of some scheduler."""
    for name in list(os.environ):
        if name.startswith(_SAYING) or name in {"RANK", "WORLD_SIZE", "LOCAL_RANK", "STALE_MINUTES"}:
            monkeypatch.delenv(name)


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[Exec]:
    processes = Exec(tmp_path / "runs")
    yield processes
    processes.clean_up()
