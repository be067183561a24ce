"""What an attempt said last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cases import cases
from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.last_line import ALWAYS, NEVER

if TYPE_CHECKING:
    from pathlib import Path


def log_of(runs: RunsTree, text: str | bytes) -> None:
    runs.write("r", "logs/training_log_latest.txt", text)


def test_the_last_line_of_the_log_goes_with_a_failure(runs: RunsTree) -> None:
    runs.metadata("r", status="failed", reason="watchdog")
    log_of(runs, "step 1\nstep 2\nbroken pipe\n\n")
    words = runs.labels("training_failure_message_info", "r")
    assert (words["message"], words["last_line"]) == ("watchdog", "broken pipe")


def test_a_healthy_run_has_no_last_line_and_a_quiet_one_has(runs: RunsTree) -> None:
    runs.metadata("r", thresholds={"stall_seconds": {"train": 10}})
    runs.progress("r", step_time=to_iso(NOW - 4))
    log_of(runs, "all reduce\r")
    assert runs.labels("training_failure_message_info", "r") == {}
    runs.now += 3
    assert runs.labels("training_failure_message_info", "r")["last_line"] == "all reduce"


def test_a_record_that_states_no_thresholds_is_quiet_by_those_of_the_exporter(tmp_path: Path) -> None:
    """As other monitors write it, with a small STALE_MINUTES."""
    runs = RunsTree(tmp_path, defaults=Thresholds(stale_seconds=60.0))
    runs.foreign("r")
    log_of(runs, "Step 1500/5000, loss: 2.134\n")
    assert runs.labels("training_failure_message_info", "r") == {}
    runs.now += 61
    assert runs.labels("training_failure_message_info", "r")["last_line"] == "Step 1500/5000, loss: 2.134"


def test_secrets_do_not_reach_the_page(runs: RunsTree) -> None:
    runs.metadata("r", status="failed", model="hf_abcdefghijklmnop")
    runs.write("r", "_error", {"attempt_key": "local:77-1:0", "message": "login failed: password=hunter2hunter2"})
    log_of(runs, "GET https://user:s3cr3t@host/x AKIAABCDEFGHIJKLMNOP\n")
    text = runs.text()
    for secret in ("hf_abcdefghijklmnop", "hunter2", "s3cr3t", "AKIAABCDEFGHIJKLMNOP"):
        assert secret not in text
    assert "password=" in text


def test_a_quiet_runs_changing_last_line_makes_one_series_a_minute_and_a_new_state_shows_its_own(
    runs: RunsTree,
) -> None:
    runs.metadata("r", thresholds={"stall_seconds": {"train": 10}})
    runs.progress("r", step_time=to_iso(NOW - 8))
    lines = []
    for second in range(0, 70, 10):
        log_of(runs, f"retry {second}\n")
        runs.now = NOW + second
        lines.append(runs.labels("training_failure_message_info", "r")["last_line"])
    assert lines == ["retry 0"] * 6 + ["retry 60"]
    log_of(runs, "Killed\n")
    runs.metadata("r", status="failed", thresholds={"stall_seconds": {"train": 10}})
    assert runs.labels("training_failure_message_info", "r")["last_line"] == "Killed"


def test_last_lines_can_be_shown_of_all_runs_or_of_none(tmp_path: Path) -> None:
    runs = RunsTree(tmp_path, last_line=ALWAYS)
    runs.metadata("r")
    log_of(runs, "step 7 loss 2.1\n")
    assert runs.labels("training_failure_message_info", "r")["last_line"] == "step 7 loss 2.1"
    runs = RunsTree(tmp_path, last_line=NEVER)
    runs.metadata("r", status="failed", reason="watchdog")
    words = runs.labels("training_failure_message_info", "r")
    assert (words["message"], words["last_line"]) == ("watchdog", "")


@cases(
    ("kind", "message", "shown"),
    [
        ("KeyError", "'input_ids'", "KeyError: 'input_ids'"),
        ("KeyError", "KeyError: 'input_ids'", "KeyError: 'input_ids'"),
        ("SystemExit", "exit status 3", "exit status 3"),
        (None, "disk full", "disk full"),
    ],
    runs=RunsTree,
)
def test_the_message_of_an_exception_has_its_type(runs: RunsTree, kind: str | None, message: str, shown: str) -> None:
    runs.metadata("r")
    runs.write("r", "_error", {"attempt_key": "local:77-1:0", "message": message, "exception_type": kind})
    assert runs.labels("training_failure_message_info", "r")["message"] == shown
