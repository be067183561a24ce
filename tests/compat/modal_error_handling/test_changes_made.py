"""The module modal_monitor: its names, its levels, and two training scripts that call it."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.compat.modal_error_handling.records import TITLE, only_record, record_of, run_program
from trainwarden.integrations import modal_monitor
from trainwarden.integrations.modal_monitor import (
    ErrorSeverity,
    GPUMemoryStats,
    ModalMonitor,
    TrainingContext,
    TrainingError,
    check_gpu_health,
    get_gpu_memory_stats,
    log_modal_environment,
    retry_with_backoff,
    track_training,
)

pytestmark = pytest.mark.seed(TITLE, "Changes Made")

ROOT = Path(__file__).resolve().parents[3]


def test_severity_levels() -> None:
    assert {each.name: each.value for each in ErrorSeverity} == {
        "WARNING": "warning",
        "ERROR": "error",
        "CRITICAL": "critical",
        "FATAL": "fatal",
    }


def test_training_context_tracks_what_the_run_is(logs: Path) -> None:
    monitor = ModalMonitor(str(logs))
    context = monitor.start_training("classifier", "T4", "/logs/train.log")
    assert isinstance(context, TrainingContext)
    assert (context.script, context.gpu_type, context.log_file) == ("classifier", "T4", "/logs/train.log")
    assert (context.status, context.end_time) == ("running", None)
    monitor.update_progress(0, 100, 0.25)
    monitor.update_progress(1, 200, 0.5)
    monitor.complete_training("completed", 0.75, "/outputs/cats_model.pt")
    assert monitor.context is not None
    ended = monitor.context.to_dict()
    assert (ended["status"], ended["epochs_completed"], ended["final_metric"]) == ("completed", 2, 0.75)
    assert ended["checkpoint_path"] == "/outputs/cats_model.pt"
    assert ended["start_time"] <= ended["end_time"]


def test_every_call_is_taken_by_name(logs: Path) -> None:
    monitor = ModalMonitor(log_dir=logs)
    with (
        pytest.raises(RuntimeError, match="gone"),
        monitor.track_training(script="dit", gpu_type="A100", log_file="/logs/dit.log") as tracked,
    ):
        assert tracked is monitor
        monitor.update_progress(epoch=0, step=7, metric=0.5)
        monitor.handle_error(error=ValueError("x"), severity="error", category="training", context={"a": 1})
        raise RuntimeError("gone")
    record = record_of(monitor, logs)
    assert record.errors[0]["context"] == {"a": 1}
    assert record.status == "failed"


def test_track_training_ends_the_run_as_its_block_ended(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(logs))
    with track_training("dit", "A100", "/logs/dit.log") as monitor:
        assert monitor.context is not None
        assert monitor.context.log_file == "/logs/dit.log"
        monitor.update_progress(step=7, metric=0.5)
    assert record_of(monitor, logs).status == "succeeded"
    with pytest.raises(TrainingError), track_training("dit", monitor=monitor):
        raise TrainingError("the loss is NaN")
    assert record_of(monitor, logs).status == "failed"


def test_gpu_memory_stats(logs: Path, torch: Any) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier", "T4")
    stats = monitor.record_gpu_stats()
    monitor.complete_training()
    assert isinstance(stats, GPUMemoryStats)
    assert monitor.gpu_stats_history == [stats]
    shown = stats.to_dict()
    assert (shown["allocated_mb"], shown["reserved_mb"], shown["max_allocated_mb"]) == (1024, 4096, 3072)
    assert (shown["free_mb"], shown["total_mb"]) == (11264, 16384)
    assert isinstance(get_gpu_memory_stats(), GPUMemoryStats)


def test_gpu_health(torch: Any) -> None:
    assert check_gpu_health() == (True, "healthy: Tesla T4")
    torch.cuda.others = 4 * 2**30
    healthy, message = check_gpu_health()
    assert (healthy, "4096 of 16384 MB are used by other processes" in message) == (False, True)


def test_a_gpu_that_fails_is_not_healthy_and_costs_no_training(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError("CUDA error: GPU is lost")

    monkeypatch.setattr(torch, "ones", lost)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lost)
    healthy, message = check_gpu_health()
    assert (healthy, "GPU is lost" in message) == (False, True)
    assert ModalMonitor().record_gpu_stats() is None


def test_without_a_gpu_nothing_is_called_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert check_gpu_health() == (False, "PyTorch is not installed, or finds no GPU")
    assert get_gpu_memory_stats() is None
    monitor = ModalMonitor()
    assert monitor.record_gpu_stats() is None
    assert monitor.gpu_stats_history == []


def test_modal_environment_logging(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("MODAL_TASK_ID", "ta-1")
    monkeypatch.setenv("MODAL_REGION", "us-east-1")
    log_modal_environment()
    assert "ta-1" in caplog.text
    assert "us-east-1" in caplog.text


def test_retry_decorator_waits_exponentially_longer(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_retry_decorator_returns_what_a_later_call_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    answers: list[Exception | int] = [ConnectionError("reset"), 7]

    @retry_with_backoff(max_retries=1, initial_delay=0.0, max_delay=1.0, backoff_multiplier=2.0, exceptions=(OSError,))
    def download() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert download() == 7


@pytest.mark.xfail(
    strict=True, raises=TypeError, reason="without brackets the function itself is taken for the number of retries"
)
def test_retry_decorator_works_without_brackets() -> None:
    def works() -> int:
        return 7

    decorator: Any = retry_with_backoff
    assert decorator(works)() == 7


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the refusal names attempts=0, an argument that the user never gave"
)
def test_retry_decorator_refuses_a_number_in_the_words_of_its_arguments() -> None:
    with pytest.raises(ValueError, match=r"max_retries.*-1"):
        retry_with_backoff(max_retries=-1)


@pytest.mark.process
def test_classifier_script_records_progress_gpu_and_completion(cats: Path, logs: Path, tmp_path: Path) -> None:
    model = tmp_path / "outputs/checkpoints/classifier/2026-02-25/cats_model.pt"
    ended = run_program("classifier", cats, "--epochs", "3", "--output", model, log_dir=logs, gpu=True)
    assert ended.returncode == 0, ended.stderr
    assert "GPU healthy: True: healthy: Tesla T4" in ended.stderr
    record = only_record(logs)
    assert record.status == "succeeded"
    assert record.training["epochs_completed"] == 3
    assert record.training["checkpoint_path"] == str(model)
    assert f"{record.training['final_metric']:.4f}" in ended.stdout


@pytest.mark.process
def test_classifier_script_records_the_category_and_the_recovery_of_its_error(cats: Path, logs: Path) -> None:
    message = "CUDA out of memory. Tried to allocate 2.00 GiB"
    ended = run_program("classifier", cats, "--fails-with", message, log_dir=logs)
    assert ended.returncode == 1
    assert "TrainingError: Training failed after 1 epochs" in ended.stderr
    assert "Recovery suggestion: The GPU's memory is exhausted. Lower the batch size" in ended.stderr
    record = only_record(logs)
    first = record.errors[0]
    assert (first["severity"], first["category"], first["error_message"]) == ("error", "memory", message)
    assert record.training["status"] == "failed"


@pytest.mark.process
def test_dit_script_records_steps_and_a_data_loading_error(cats: Path, logs: Path, tmp_path: Path) -> None:
    ended = run_program("dit", cats, "--steps", "200", log_dir=logs / "whole")
    assert ended.returncode == 0, ended.stderr
    training = only_record(logs / "whole").training
    assert (training["status"], training["steps_completed"], training["final_step"]) == ("completed", 200, 200)
    assert training["final_metric"] == pytest.approx(1 / 209)
    ended = run_program("dit", tmp_path / "data/dogs", log_dir=logs / "broken")
    assert ended.returncode == 1
    record = only_record(logs / "broken")
    first = record.errors[0]
    assert (first["severity"], first["category"]) == ("critical", "data_loading")
    assert first["context"] == {"data": str(tmp_path / "data/dogs")}
    assert record.training["status"] == "failed"


@pytest.mark.process
def test_modal_image_needs_the_package_and_nothing_else() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {modal_monitor.__name__}; print('OK')"
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "OK\n"), ended.stderr


def test_names_that_scripts_import() -> None:
    module: types.ModuleType = modal_monitor
    names = [
        *("ModalMonitor", "TrainingContext", "TrainingError", "ErrorCategory", "ErrorSeverity", "GPUMemoryStats"),
        *("track_training", "retry_with_backoff"),
        *("check_gpu_health", "get_gpu_memory_stats", "log_modal_environment"),
    ]
    assert [name for name in names if not hasattr(module, name)] == []
