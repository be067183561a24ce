"""The calls of a custom training script, step by step."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from tests.compat.modal_error_handling.records import TITLE, record_of
from trainwarden import cli
from trainwarden.integrations.modal_monitor import ErrorSeverity, ModalMonitor
from trainwarden.record.clock import to_iso

pytestmark = pytest.mark.seed(TITLE, "Migration Notes")


def test_initialize_track_and_complete(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training(script="my_script", gpu_type="T4")
    try:
        for epoch in range(2):
            monitor.update_progress(epoch=epoch, metric=0.5 + epoch / 4)
    except Exception as e:
        monitor.handle_error(e, severity=ErrorSeverity.ERROR)
        raise
    finally:
        monitor.complete_training(status="completed")
    training = record_of(monitor, logs).training
    assert (training["status"], training["epochs_completed"], training["final_metric"]) == ("completed", 2, 0.75)


def test_handle_errors_leaves_a_failed_run_whatever_complete_training_was_told(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training(script="my_script", gpu_type="T4")
    with pytest.raises(RuntimeError, match="out of memory"):
        try:
            raise RuntimeError("CUDA out of memory")
        except Exception as e:
            monitor.handle_error(e, severity=ErrorSeverity.ERROR)
            raise
        finally:
            monitor.complete_training(status="completed")
    record = record_of(monitor, logs)
    assert (record.status, record.training["status"]) == ("failed", "failed")
    assert (record.errors[0]["severity"], record.errors[0]["category"]) == ("error", "memory")
    assert monitor.context is not None
    assert monitor.context.status == "failed"


def test_a_status_other_than_completed_is_a_failure(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training(script="my_script", gpu_type="T4")
    monitor.complete_training(status="failed")
    assert record_of(monitor, logs).status == "failed"


def test_a_second_training_has_a_record_of_its_own(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    metrics = []
    for metric in (0.25, 0.75):
        monitor.start_training(script="my_script")
        monitor.complete_training(status="completed", final_metric=metric)
        metrics.append(record_of(monitor, logs).training["final_metric"])
    assert metrics == [0.25, 0.75]
    assert len(list(logs.glob("*/summary.json"))) == 2


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a second start_training() ends the first training as succeeded"
)
def test_a_training_that_nobody_completed_has_not_succeeded(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training(script="my_script")
    monitor.update_progress(epoch=0, metric=0.5)
    first = record_of(monitor, logs)
    monitor.start_training(script="my_script")
    monitor.complete_training(status="completed")
    assert first.status != "succeeded"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="calls are counted as steps, which a retry then counts from 1 again"
)
def test_a_retry_that_goes_on_with_the_next_epoch_repeats_no_step(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt, epochs in enumerate((range(3), range(3, 6))):
        monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", f"modal:ta-{attempt}:0")
        monitor = ModalMonitor(logs)
        monitor.start_training(script="my_script", run_id="cats")
        for epoch in epochs:
            monitor.update_progress(epoch=epoch, metric=0.5)
        monitor.complete_training(status="completed" if attempt else "failed")
    progress = json.loads((logs / "cats/progress.json").read_text())
    assert progress["attempt"] == 1
    assert (progress["steps_completed"] or 0) == (progress["high_water"] or 0)


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="what takes longer than ten minutes counts as standing still, always"
)
def test_a_loop_that_reports_an_epoch_every_eleven_minutes_does_not_stand_still(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now, between, since = time.time(), 660.0, 655.0
    last = to_iso(now - since)
    attempt = {"version": 1, "attempt": 0, "attempt_key": "local:1-1:0"}
    metadata = {
        **attempt, "run_id": "cats", "status": "running", "phase": "train", "last_update": to_iso(now),
        "host": socket.gethostname(), "start_time": to_iso(now - since - 9 * between),
    }  # fmt: skip
    progress = {
        **attempt, "step": 9, "epoch": 8, "last_updated": last, "step_time": last, "moved_time": last, "high_water": 9,
        "steps_completed": 9, "step_durations": {"count": 8, "p50": between, "p99": between, "max": between},
    }  # fmt: skip
    folder = logs / "cats"
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "progress.json").write_text(json.dumps(progress))
    status = cli.main(["status", "cats", "--once", "--runs-dir", str(logs)])
    assert (status, "stale" in capsys.readouterr().out.partition("Heartbeats")[0]) == (0, False)
