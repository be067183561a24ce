"""Where a training has run: reading its result, on the spot and out of the storage that outlives the container."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.modal_error_handling.records import HERE, TITLE, record_of
from tests.integration.s3.conftest import moto_url, plain_environment, read_models_once, s3, store
from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from trainwarden import cli
from trainwarden.integrations.modal_monitor import ErrorSeverity, ModalMonitor
from trainwarden.record.ownership import RunRefused

__all__ = ["moto_url", "plain_environment", "read_models_once", "s3", "store"]

pytestmark = pytest.mark.seed(TITLE, "Usage")


def analyze(folder: Path) -> list[str]:
    """What the users' own program prints about the latest summary."""
    command = [sys.executable, str(HERE / "programs/analyze.py"), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.process
def test_analysis_of_the_latest_summary(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier", "T4")
    for epoch in range(2):
        monitor.update_progress(epoch=epoch, metric=0.75 + epoch / 8)
    monitor.handle_error(OSError("truncated image"), severity=ErrorSeverity.WARNING)
    monitor.complete_training(status="completed")
    training = record_of(monitor, logs).training
    assert analyze(logs) == [
        "Status: completed",
        f"Duration: {training['duration_seconds']}s",
        "Final metric: 0.875",
        "Errors: 1",
        "Avg GPU memory: NoneMB",
    ]


def test_logs_of_a_container_are_listed_and_read_from_elsewhere(
    logs: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("TRAINWARDEN_RUN_ID", "r")
    monkeypatch.setenv("MODAL_TASK_ID", "ta-1")
    monitor = ModalMonitor(logs, store.url)
    monitor.start_training("classifier", "T4")
    monitor.update_progress(epoch=0, metric=0.95)
    monitor.complete_training(status="completed")
    assert {"events.jsonl", "summary.json"} <= store.names()
    assert store.document("summary.json")["training"]["final_metric"] == 0.95
    assert b'"training_completed"' in store.read("events.jsonl")
    assert cli.main(["status", "r", "--once", "--s3", store.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == "r"


@pytest.mark.xfail(
    strict=True, raises=RunRefused, reason="a bucket that is not there stops the training before it starts"
)
def test_a_bucket_that_is_not_there_does_not_stop_the_training(
    logs: Path, tmp_path: Path, s3: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(tmp_path / "node"))
    monitor = ModalMonitor(logs, "s3://no-such-bucket/training-runs")
    monitor.start_training("classifier", "T4")
    monitor.complete_training(status="completed")
