"""The monitor changes nothing of the training: what it returns, what it raises, whether it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.modal_error_handling.records import TITLE, record_of
from trainwarden.integrations.modal_monitor import ModalMonitor, TrainingError
from trainwarden.record.ownership import RunRefused

pytestmark = pytest.mark.seed(TITLE, "Backward Compatibility")


def test_training_error_is_an_exception_of_the_module() -> None:
    cause = RuntimeError("CUDA out of memory")
    with pytest.raises(TrainingError, match="Training failed: CUDA out of memory") as caught:
        raise TrainingError(f"Training failed: {cause}") from cause
    assert caught.value.__cause__ is cause


def test_the_exception_of_the_training_is_the_one_that_leaves_it(logs: Path) -> None:
    raised = KeyError("label")
    monitor = ModalMonitor(logs)
    with pytest.raises(KeyError) as caught, monitor.track_training("classifier"):
        raise raised
    assert caught.value is raised


def test_calls_before_the_start_do_not_disturb_the_training(caplog: pytest.LogCaptureFixture) -> None:
    monitor = ModalMonitor()
    monitor.update_progress(epoch=1)
    monitor.handle_error(ValueError("x"))
    monitor.complete_training()
    assert "before start_training()" in caplog.text


def test_odd_values_do_not_disturb_the_training(logs: Path) -> None:
    odd = object()
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    monitor.update_progress(epoch="first", step="second", metric=odd)  # type: ignore[arg-type]  # odd on purpose
    monitor.handle_error("no exception", severity="levitating", category=7, context={"odd": odd})  # type: ignore[arg-type]
    monitor.complete_training(status="completed")
    assert record_of(monitor, logs).status == "succeeded"


@pytest.mark.xfail(
    strict=True, raises=RunRefused, reason="a folder that cannot be written stops the training before it starts"
)
def test_a_folder_that_cannot_be_written_does_not_stop_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monitor = ModalMonitor(tmp_path / "file")
    monitor.start_training(script="classifier", gpu_type="T4")
    monitor.update_progress(epoch=0, metric=0.5)
    monitor.complete_training()


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the folder of a Modal container, which is lost, is taken in silence"
)
def test_in_modal_the_default_folder_lasts_or_a_line_says_that_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MODAL_TASK_ID", "ta-1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monitor = ModalMonitor()
    monitor.start_training("classifier")
    assert monitor.run is not None
    folder = Path(monitor.run.folder)
    monitor.complete_training()
    assert folder.is_relative_to("/outputs") or str(folder.parent) in caplog.text
