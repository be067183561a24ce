"""The calls of modal_monitor, as trainings have them that were written for it."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.unit.library.looking import read_metadata
from trainwarden.integrations.modal_monitor import (
    ErrorCategory,
    ErrorSeverity,
    GPUMemoryStats,
    ModalMonitor,
    TrainingContext,
    TrainingError,
    category_of,
    check_gpu_health,
    get_gpu_memory_stats,
    log_modal_environment,
    retry_with_backoff,
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


def test_each_training_of_a_process_has_a_record_of_its_own(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINWARDEN_RUN_ID")
    monkeypatch.setattr(ModalMonitor, "_unnamed", [])
    names = []
    for metric, script in ((0.93, "classifier"), (0.5, "detector"), (0.25, "detector")):
        monitor = ModalMonitor()
        monitor.start_training(script)
        assert monitor.run is not None
        names.append(monitor.run.run_id)
        monitor.complete_training("completed", metric)
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    summaries = [json.loads((tmp_path / name / "summary.json").read_text())["training"] for name in names]
    assert [each["final_metric"] for each in summaries] == [0.93, 0.5, 0.25]


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
    with track_training("dit", "A100", "/logs/dit.log") as monitor:
        assert monitor.context
        assert monitor.context.log_file == "/logs/dit.log"
        monitor.update_progress(step=7, loss=0.5)
    assert read_metadata(runs).status == "succeeded"
    assert json.loads((runs / "progress.json").read_text())["step"] == 7


def test_calls_before_the_start_do_not_disturb_the_training(caplog: pytest.LogCaptureFixture) -> None:
    monitor = ModalMonitor()
    monitor.update_progress(epoch=1)
    monitor.handle_error(ValueError("x"))
    monitor.complete_training()
    assert "before start_training()" in caplog.text


def test_every_call_is_taken_by_position(runs: Path) -> None:
    monitor = ModalMonitor(str(runs.parent / "logs"))
    context = monitor.start_training("classifier", "T4", "/logs/train.log")
    assert isinstance(context, TrainingContext)
    monitor.update_progress(0, 100, 0.25)
    monitor.update_progress(1, 200, 0.5)
    described = monitor.handle_error(
        ValueError("bad"), ErrorSeverity.WARNING, ErrorCategory.DATA_LOADING, {"file": "a"}
    )
    monitor.complete_training("completed", 0.75, str(runs))
    folder = runs.parent / "logs" / "cats"
    summary = json.loads((folder / "summary.json").read_text())["training"]
    assert (summary["status"], summary["final_metric"], summary["final_step"]) == ("completed", 0.75, 200)
    assert summary["checkpoint_path"] == str(runs)
    assert monitor.context
    shown = monitor.context.to_dict()
    assert (shown["script"], shown["gpu_type"], shown["log_file"]) == ("classifier", "T4", "/logs/train.log")
    assert (shown["status"], shown["epochs_completed"], shown["final_metric"]) == ("completed", 2, 0.75)
    assert monitor.error_history == [described]
    wanted = {"error_type": "ValueError", "error_message": "bad", "severity": "warning", "category": "data_loading"}
    assert described.items() >= {**wanted, "context": {"file": "a"}, "script": "classifier"}.items()
    assert lines(folder / "errors.jsonl")[0]["context"] == {"file": "a"}


def test_every_call_is_taken_by_name(runs: Path) -> None:
    monitor = ModalMonitor(log_dir=runs.parent / "logs")
    with (
        pytest.raises(RuntimeError, match="gone"),
        monitor.track_training(script="dit", gpu_type="A100", log_file="/logs/dit.log") as tracked,
    ):
        assert tracked is monitor
        monitor.update_progress(epoch=0, step=7, metric=0.5, loss=0.25)
        monitor.handle_error(error=ValueError("x"), severity="error", category="training", context={"a": 1}, b=2)
        raise RuntimeError("gone")
    folder = runs.parent / "logs" / "cats"
    assert lines(folder / "errors.jsonl")[0]["context"] == {"a": 1, "b": 2}
    assert read_metadata(folder).status == "failed"
    assert monitor.context
    assert monitor.context.status == "failed"
    monitor.start_training(script="dit")
    monitor.complete_training(status="completed", final_metric=0.5, checkpoint_path=None)


def test_without_a_gpu_nothing_is_called_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert check_gpu_health() == (False, "PyTorch is not installed, or finds no GPU")
    assert get_gpu_memory_stats() is None
    monitor = ModalMonitor()
    assert monitor.record_gpu_stats() is None
    assert monitor.gpu_stats_history == []


class FakeCuda:
    """Of PyTorch, what the adapter asks; 16 GiB of memory."""

    others = 2**30

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def get_device_name(self, _number: int) -> str:
        return "Tesla T4"

    def memory_allocated(self, _number: int = 0) -> int:
        return 2**30

    def memory_reserved(self, _number: int = 0) -> int:
        return 2**31

    max_memory_allocated = memory_reserved

    def mem_get_info(self, _number: int = 0) -> tuple[int, int]:
        return 2**34 - 2**31 - self.others, 2**34


def test_the_memory_of_a_gpu_is_kept_and_one_that_others_use_is_not_healthy(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    one = types.SimpleNamespace(item=lambda: 1.0)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, ones=lambda *_a, **_k: one))
    assert check_gpu_health() == (True, "healthy: Tesla T4")
    monitor = ModalMonitor()
    monitor.start_training("classifier", "T4")
    stats = monitor.record_gpu_stats()
    monitor.complete_training()
    assert isinstance(stats, GPUMemoryStats)
    assert monitor.gpu_stats_history == [stats]
    assert (stats.allocated_mb, stats.reserved_mb, stats.free_mb, stats.total_mb) == (1024, 2048, 13312, 16384)
    events = {each["event_type"]: each["data"] for each in lines(runs / "events.jsonl")}
    assert events["gpu_memory"] == stats.to_dict()
    cuda.others = 2**32
    assert check_gpu_health() == (False, "GPU 0 (Tesla T4): 4096 of 16384 MB are used by other processes")


def test_of_modals_environment_no_token_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TASK_ID", "ta-1"), ("REGION", "us-east-1"), ("TOKEN_SECRET", "as-s3cret")):
        monkeypatch.setenv(f"MODAL_{name}", value)
    assert log_modal_environment() == {"modal_task_id": "ta-1", "modal_region": "us-east-1"}


def test_the_retry_decorator_waits_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    calls = []

    @retry_with_backoff(3, 1.0, 5.0, 3.0, (KeyError,))
    def fails(kind: type[Exception]) -> None:
        calls.append(kind)
        raise kind("x")

    with pytest.raises(KeyError):
        fails(KeyError)
    assert (len(calls), waits) == (4, [1.0, 3.0, 5.0])
    with pytest.raises(ValueError, match="x"):
        fails(ValueError)
    assert len(calls) == 5, "no other exception is repeated"

    @retry_with_backoff(max_retries=1, initial_delay=0.0, max_delay=1.0, backoff_multiplier=2.0)
    def works() -> int:
        return 7

    assert works() == 7
