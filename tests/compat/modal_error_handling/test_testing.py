"""The commands by which users try the monitor on their own machine, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.modal_error_handling.records import TITLE, only_record, run_program

pytestmark = [pytest.mark.seed(TITLE, "Testing"), pytest.mark.process]


def test_module_can_be_imported() -> None:
    code = "from trainwarden.integrations.modal_monitor import ModalMonitor; print('OK')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "OK\n", "")


def test_one_epoch_on_the_cpu_leaves_the_logs(cats: Path, logs: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.pt"
    ended = run_program("classifier", cats, "--epochs", "1", "--batch-size", "8", "--output", output, log_dir=logs)
    assert ended.returncode == 0, ended.stderr
    record = only_record(logs)
    assert (record.folder / "events.jsonl").stat().st_size > 0
    assert record.training["epochs_completed"] == 1
    assert record.summary["gpu_stats"]["samples"] == 0
