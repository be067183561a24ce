"""What an attempt said last."""

from __future__ import annotations

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso


def log_of(runs: RunsTree, text: str | bytes) -> None:
    runs.write("r", "logs/training_log_latest.txt", text)


def test_the_last_line_of_the_log_goes_with_a_failure(runs: RunsTree) -> None:
    runs.metadata("r", status="failed", reason="watchdog")
    log_of(runs, "step 1\nstep 2\nbroken pipe\n\n")
    words = runs.labels("training_failure_message_info", "r")
    assert (words["message"], words["last_line"]) == ("watchdog", "broken pipe")


def test_a_healthy_run_has_no_last_words_and_a_quiet_one_has(runs: RunsTree) -> None:
    runs.metadata("r", thresholds={"stall_seconds": {"train": 10}})
    runs.progress("r", step_time=to_iso(NOW - 4))
    log_of(runs, "all reduce\r")
    assert runs.labels("training_failure_message_info", "r") == {}
    runs.now += 3
    assert runs.labels("training_failure_message_info", "r")["last_line"] == "all reduce"


def test_secrets_do_not_reach_the_page(runs: RunsTree) -> None:
    runs.metadata("r", status="failed", model="hf_abcdefghijklmnop")
    runs.write("r", "_error", {"attempt_key": "local:77-1:0", "message": "login failed: password=hunter2hunter2"})
    log_of(runs, "GET https://user:s3cr3t@host/x AKIAABCDEFGHIJKLMNOP\n")
    text = runs.text()
    for secret in ("hf_abcdefghijklmnop", "hunter2", "s3cr3t", "AKIAABCDEFGHIJKLMNOP"):
        assert secret not in text
    assert "password=" in text
