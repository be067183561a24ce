"""The files of a training: which there are, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.compat.modal_error_handling.records import TITLE, Record, record_of, run_program
from trainwarden import cli
from trainwarden.integrations.modal_monitor import ErrorCategory, ErrorSeverity, ModalMonitor

pytestmark = pytest.mark.seed(TITLE, "Monitoring Outputs")

Train = Callable[[Path], Record]


@pytest.fixture
def completed(logs: Path, tmp_path: Path, torch: Any) -> Record:
    """The record of ten epochs on a GPU, with the arguments of the classifier."""
    model = tmp_path / "outputs/checkpoints/classifier/2026-02-25/cats_model.pt"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"weights")
    monitor = ModalMonitor(logs)
    monitor.start_training(script="classifier", gpu_type="T4")
    monitor.record_gpu_stats()
    for epoch in range(10):
        monitor.update_progress(epoch=epoch, metric=epoch / 10)
    monitor.record_gpu_stats()
    monitor.complete_training(status="completed", final_metric=0.95, checkpoint_path=str(model))
    return record_of(monitor, logs)


@pytest.fixture
def failed(logs: Path) -> Record:
    """The record of a training that ran out of memory, with the calls of the migration notes."""
    monitor = ModalMonitor(logs)
    monitor.start_training(script="classifier", gpu_type="T4")
    with pytest.raises(RuntimeError):
        try:
            monitor.update_progress(epoch=0, metric=0.5)
            allocate()
        except Exception as e:
            monitor.handle_error(e, severity=ErrorSeverity.ERROR, category=ErrorCategory.MEMORY)
            raise
        finally:
            monitor.complete_training(status="completed")
    return record_of(monitor, logs)


def allocate() -> None:
    """Fail as PyTorch does."""
    raise RuntimeError("CUDA out of memory")


def is_time(text: str) -> bool:
    """Whether a reader of ISO 8601 takes it, with or without Z."""
    return bool(datetime.fromisoformat(text.replace("Z", "+00:00")))


def test_directory_has_event_log_error_records_and_summary(failed: Record) -> None:
    assert {"events.jsonl", "errors.jsonl", "summary.json"} <= {each.name for each in failed.folder.iterdir()}


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a training of one process leaves the files of many, whose turn never comes",
)
def test_directory_has_no_files_for_other_ranks_and_owners(failed: Record) -> None:
    assert {each.name for each in failed.folder.iterdir()} & {".owner", "ranks", "checkpoint.json"} == set()


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="a run without a name is called by its process alone")
def test_directory_names_the_script_where_the_summary_lies(completed: Record) -> None:
    assert "classifier" in completed.folder.name


@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the tenth training of a process sorts before its ninth by name"
)
def test_directory_sorts_the_latest_summary_last(logs: Path) -> None:
    ended = run_program("folds", "10", log_dir=logs)
    assert ended.returncode == 0, ended.stderr
    last = sorted(logs.glob("*/summary.json"))[-1]
    assert Record(last.parent).training["final_metric"] == 9


def test_event_log_has_timestamp_type_and_data_in_each_line(completed: Record) -> None:
    events = completed.events
    assert {tuple(each) for each in events} == {("timestamp", "event_type", "data")}
    assert all(is_time(each["timestamp"]) for each in events)
    assert all(isinstance(each["data"], dict) for each in events)
    kinds = [each["event_type"] for each in events]
    assert (kinds[0], kinds[-1]) == ("training_started", "training_completed")


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="training_started has the program's file as script, and no GPU type"
)
def test_event_log_training_started_has_script_and_gpu_type(completed: Record) -> None:
    assert completed.data_of("training_started").items() >= {"script": "classifier", "gpu_type": "T4"}.items()


def test_event_log_has_script_and_gpu_type_of_the_configuration(completed: Record) -> None:
    assert completed.data_of("training_configuration") == {"script": "classifier", "gpu_type": "T4"}


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="the event of record_gpu_stats() is called gpu_memory")
def test_event_log_gpu_stats_has_allocated_mb(completed: Record) -> None:
    stats = [each["data"]["allocated_mb"] for each in completed.events if each["event_type"] == "gpu_stats"]
    assert len(stats) >= 2
    assert all(allocated >= 1024 for allocated in stats)


def test_event_log_training_completed_has_status_and_final_metric(completed: Record) -> None:
    assert completed.data_of("training_completed").items() >= {"status": "completed", "final_metric": 0.95}.items()


def test_error_record_of_the_file(failed: Record) -> None:
    first = failed.errors[0]
    assert is_time(first["timestamp"])
    wanted = {"error_message": "CUDA out of memory", "severity": "error", "category": "memory", "context": {}}
    assert first.items() >= {**wanted, "exception_type": "RuntimeError"}.items()
    assert first["traceback"].startswith("Traceback (most recent call last):\n")
    assert {"error_type", "script"} <= first.keys()


def test_error_record_of_the_call_has_its_keys_in_order(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier", "T4")
    described = monitor.handle_error(
        RuntimeError("CUDA out of memory"), ErrorSeverity.WARNING, ErrorCategory.DATA_LOADING, {"file": "a"}
    )
    monitor.complete_training()
    keys = "timestamp error_type error_message severity category traceback context script"
    assert list(described) == keys.split()
    assert (described["error_type"], described["error_message"]) == ("RuntimeError", "CUDA out of memory")
    assert (described["severity"], described["category"]) == ("warning", "data_loading")
    assert (described["context"], described["script"]) == ({"file": "a"}, "classifier")
    assert monitor.error_history == [described]


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="script is the program's file, not the training's name")
def test_error_record_of_the_file_has_the_training_as_script(failed: Record) -> None:
    assert failed.errors[0]["script"] == "classifier"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="handle_error, raise and complete_training record one error twice"
)
def test_error_record_is_written_once_for_one_error(failed: Record) -> None:
    assert [each["error_message"] for each in failed.errors] == ["CUDA out of memory"]


def test_training_summary_of_a_completed_training(completed: Record) -> None:
    training = completed.training
    shown = {key: training[key] for key in ("status", "epochs_completed", "final_metric")}
    assert shown == {"status": "completed", "epochs_completed": 10, "final_metric": 0.95}
    assert training["checkpoint_path"].endswith("/outputs/checkpoints/classifier/2026-02-25/cats_model.pt")
    assert is_time(training["start_time"]) and is_time(training["end_time"])
    assert training["start_time"] < training["end_time"]
    assert training["duration_seconds"] > 0
    assert completed.summary["errors"] == []


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="script is the program's file, not the training's name")
def test_training_summary_has_the_training_as_script(completed: Record) -> None:
    assert completed.training["script"] == "classifier"


def test_training_summary_of_a_failed_training(failed: Record) -> None:
    assert failed.training["status"] == "failed"
    first = failed.summary["errors"][0]
    assert (first["error_message"], first["category"]) == ("CUDA out of memory", "memory")


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the summary counts no sample of record_gpu_stats(), only its own"
)
def test_training_summary_has_samples_mean_and_maximum_of_gpu_memory(completed: Record) -> None:
    stats = completed.summary["gpu_stats"]
    assert stats["samples"] >= 2
    assert 1024 <= stats["avg_allocated_mb"] <= stats["max_allocated_mb"] <= 4096


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the summary keeps 20 errors, and no number says that there were more"
)
def test_training_summary_says_how_many_errors_there_were(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    for number in range(25):
        monitor.handle_error(ValueError(f"image {number} is broken"), severity=ErrorSeverity.WARNING)
    monitor.complete_training()
    summary = record_of(monitor, logs).summary
    numbers = [len(summary["errors"]), *summary.values(), *summary["training"].values()]
    assert 25 in [each for each in numbers if isinstance(each, int)]


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the summary takes the loss of the last call, the context its metric"
)
def test_training_summary_and_context_agree_about_the_final_metric(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    monitor.update_progress(epoch=0, metric=0.9)
    monitor.update_progress(epoch=1, loss=0.1)
    monitor.complete_training()
    assert monitor.context is not None
    assert record_of(monitor, logs).training["final_metric"] == monitor.context.final_metric == 0.9


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the context counts each call with an epoch as an epoch that has ended"
)
def test_training_summary_and_context_agree_about_the_epochs(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    for step in range(4):
        monitor.update_progress(epoch=0, step=step, metric=0.5)
    monitor.complete_training()
    assert monitor.context is not None
    assert record_of(monitor, logs).training["epochs_completed"] == monitor.context.epochs_completed == 1


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="compare shows the metric, an accuracy, under LOSS")
def test_training_summary_has_no_accuracy_as_loss(completed: Record, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", completed.folder.name, "--runs-dir", str(completed.folder.parent)]) == 0
    header, row = capsys.readouterr().out.splitlines()
    column = header.index("LOSS")
    assert re.split(r"\s{2,}", row[column:])[0].strip() == "-"
