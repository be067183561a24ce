"""What the programs of modal_monitor's users find: a folder for the records, data, and perhaps a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.modal_error_handling.records import HERE
from tests.job_variables import remove_job_variables


@pytest.fixture(autouse=True)
def plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a job of some scheduler; a worker of theirs has no program's name."""
    remove_job_variables(monkeypatch)
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setattr(sys, "argv", ["/app/train.py"])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The `log_dir` of a monitor: one folder for each run."""
    return tmp_path / "outputs" / "logs" / "monitor"


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    """A data set of nine images."""
    folder = tmp_path / "data" / "cats"
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"{number}.jpg").write_bytes(b"cat")
    return folder


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch's stand-in with a GPU, in the test's own process."""
    spec = importlib.util.spec_from_file_location("torch", HERE / "gpu" / "torch.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torch", module)
    spec.loader.exec_module(module)
    return module
