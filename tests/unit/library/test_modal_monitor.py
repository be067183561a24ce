"""The calls of modal_monitor, as trainings have them that were written for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.library.looking import read_metadata
from trainwarden.integrations.modal_monitor import (
    ErrorCategory,
    ErrorSeverity,
    ModalMonitor,
    TrainingError,
    category_of,
    track_training,
)
from trainwarden.taxonomy import CATEGORIES, SEVERITIES


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINWARDEN_RUN_ID", "cats")
    return tmp_path / "cats"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_enums_are_those_of_the_taxonomy() -> None:
    assert {each.value for each in ErrorCategory} == set(CATEGORIES)
    assert {each.value for each in ErrorSeverity} == set(SEVERITIES)


def test_a_training_as_the_migration_notes_show_it(runs: Path) -> None:
    monitor = ModalMonitor()
    monitor.start_training(script="classifier", gpu_type="T4")
    try:
        for epoch in range(2):
            monitor.update_progress(epoch=epoch, metric=0.5 + epoch / 4)
    finally:
        monitor.complete_training(status="completed")
    summary = json.loads((runs / "summary.json").read_text())["training"]
    assert (summary["status"], summary["epochs_completed"], summary["final_metric"]) == ("completed", 2, 0.75)
    events = {each["event_type"]: each["data"] for each in lines(runs / "events.jsonl")}
    assert events["training_configuration"] == {"script": "classifier", "gpu_type": "T4"}


def test_an_error_is_recorded_and_its_exception_is_the_end(runs: Path) -> None:
    monitor = ModalMonitor()
    monitor.start_training(script="classifier")
    with pytest.raises(TrainingError):
        try:
            try:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            except RuntimeError as error:
                monitor.handle_error(error, severity=ErrorSeverity.ERROR, category=ErrorCategory.MEMORY)
                assert "batch size" in monitor.get_recovery_suggestion(error)
                assert category_of(error) is ErrorCategory.MEMORY
                raise TrainingError("Training failed") from error
        finally:
            monitor.complete_training(status="completed")
    first = lines(runs / "errors.jsonl")[0]
    assert (first["severity"], first["category"], first["error_type"]) == ("error", "memory", "oom")
    assert read_metadata(runs).status == "failed", "whatever complete_training() was told"


def test_a_status_other_than_completed_is_a_failure(runs: Path) -> None:
    monitor = ModalMonitor()
    monitor.start_training(script="classifier")
    monitor.complete_training(status="failed")
    assert read_metadata(runs).status == "failed"


def test_the_context_manager_ends_the_run_as_its_block_ended(runs: Path) -> None:
    with track_training("dit", gpu_type="A100") as monitor:
        monitor.update_progress(step=7, loss=0.5)
    assert read_metadata(runs).status == "succeeded"
    assert json.loads((runs / "progress.json").read_text())["step"] == 7


def test_calls_before_the_start_do_not_disturb_the_training(caplog: pytest.LogCaptureFixture) -> None:
    monitor = ModalMonitor()
    monitor.update_progress(epoch=1)
    monitor.handle_error(ValueError("x"))
    monitor.complete_training()
    assert "before start_training()" in caplog.text
