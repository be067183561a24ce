"""Where users look when something went wrong: the errors, the summaries and the advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.modal_error_handling.records import TITLE
from trainwarden.integrations.modal_monitor import ModalMonitor

pytestmark = pytest.mark.seed(TITLE, "Support")


def test_errors_and_summaries_of_all_trainings_are_found_by_one_pattern(logs: Path) -> None:
    monitor = ModalMonitor(logs)
    for message in ("Loss becomes NaN", "CUDA out of memory"):
        with pytest.raises(RuntimeError), monitor.track_training("classifier", "T4"):
            raise RuntimeError(message)
    errors = [json.loads(line) for path in logs.glob("*/errors.jsonl") for line in path.read_text().splitlines()]
    assert {(each["error_message"], each["category"]) for each in errors} == {
        ("Loss becomes NaN", "training"),
        ("CUDA out of memory", "memory"),
    }
    summaries = [json.loads(path.read_text()) for path in logs.glob("*/summary.json")]
    assert {each["training"]["status"] for each in summaries} == {"failed"}
    assert {each["training"]["reason"] for each in summaries} == {"Loss becomes NaN", "CUDA out of memory"}


def test_recovery_suggestion_needs_no_training_in_progress() -> None:
    said = ModalMonitor().get_recovery_suggestion(RuntimeError("CUDA out of memory"))
    assert "batch size" in said
