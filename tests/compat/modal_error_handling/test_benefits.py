"""What the monitor is for: errors that can be traced, advice after them, a history of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.modal_error_handling.records import TITLE, record_of
from trainwarden.integrations.modal_monitor import ErrorSeverity, ModalMonitor, TrainingError

pytestmark = pytest.mark.seed(TITLE, "Benefits")

# A few words of each.
ADVICE: list[tuple[BaseException, str]] = [
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "batch size"),
    (ConnectionError("Download failure"), "connection"),
    (FileNotFoundError("Missing dataset files: data/cats"), "data set"),
    (RuntimeError("Loss becomes NaN"), "learning rate"),
    (RuntimeError("failed to save checkpoint"), "space"),
    (ValueError("invalid config: epochs must be positive"), "settings"),
    (RuntimeError("DataLoader worker (pid(s) 4711) exited unexpectedly"), "worker"),
]


def test_recovery_suggestion_follows_from_the_error() -> None:
    monitor = ModalMonitor()
    wrong = [
        (str(error), said)
        for error, words in ADVICE
        if words not in (said := monitor.get_recovery_suggestion(error)).lower()
    ]
    assert wrong == []


def test_traceback_names_files_lines_and_functions(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    try:
        load_batch()
    except TrainingError as error:
        monitor.handle_error(error)
    monitor.complete_training()
    trace = record_of(monitor, logs).errors[0]["traceback"]
    assert f'File "{__file__}", line ' in trace
    assert "in load_batch" in trace
    assert "in read_image" in trace
    assert trace.index("OSError: truncated") < trace.index("TrainingError: no batch"), "the cause comes first"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the trace of handle_error() has no source lines, and names no cause"
)
def test_traceback_is_kept_in_full(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    try:
        load_batch()
    except TrainingError as error:
        monitor.handle_error(error)
    monitor.complete_training()
    trace = record_of(monitor, logs).errors[0]["traceback"]
    assert 'raise OSError("truncated image")' in trace
    assert "The above exception was the direct cause of the following exception:" in trace


def load_batch() -> None:
    try:
        read_image()
    except OSError as error:
        raise TrainingError("no batch") from error


def read_image() -> None:
    raise OSError("truncated image")


def test_error_history_has_every_error_in_order(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    monitor.start_training("classifier")
    for number, severity in enumerate(ErrorSeverity):
        monitor.handle_error(ValueError(str(number)), severity=severity)
    monitor.complete_training()
    wanted = [("0", "warning"), ("1", "error"), ("2", "critical"), ("3", "fatal")]
    assert [(each["error_message"], each["severity"]) for each in monitor.error_history] == wanted
    errors = record_of(monitor, logs).errors
    assert [(each["error_message"], each["severity"]) for each in errors] == wanted
