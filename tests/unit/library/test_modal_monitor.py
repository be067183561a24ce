"""What the adapter adds to the calls of modal_monitor. The promises to its users: tests/compat/modal_error_handling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwarden.integrations.modal_monitor import (
    ErrorCategory,
    ErrorSeverity,
    ModalMonitor,
    category_of,
    log_modal_environment,
)
from trainwarden.taxonomy import CATEGORIES, SEVERITIES


def test_the_enums_are_those_of_the_taxonomy() -> None:
    assert {each.value for each in ErrorCategory} == set(CATEGORIES)
    assert {each.value for each in ErrorSeverity} == set(SEVERITIES)


def test_the_category_of_an_error_can_be_asked_for() -> None:
    assert category_of(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")) is ErrorCategory.MEMORY


def test_each_training_of_a_process_has_a_record_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setattr(ModalMonitor, "_unnamed", [])
    names = []
    for metric, script in ((0.93, "classifier"), (0.5, "detector"), (0.25, "detector")):
        monitor = ModalMonitor(tmp_path)
        monitor.start_training(script)
        assert monitor.run is not None
        names.append(monitor.run.run_id)
        monitor.complete_training("completed", metric)
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    summaries = [json.loads((tmp_path / name / "summary.json").read_text())["training"] for name in names]
    assert [each["final_metric"] for each in summaries] == [0.93, 0.5, 0.25]


def test_of_modals_environment_no_token_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TASK_ID", "ta-1"), ("REGION", "us-east-1"), ("TOKEN_SECRET", "as-s3cret")):
        monkeypatch.setenv(f"MODAL_{name}", value)
    assert log_modal_environment() == {"modal_task_id": "ta-1", "modal_region": "us-east-1"}
