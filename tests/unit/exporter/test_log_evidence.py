"""The cause of a failure: the record's own word where it says why, else what the log says, and never another later."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.logs_tree import OOM, LogsTree
from trainwarden.record.clock import to_iso
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.collectors.runs.log_evidence import LogEvidence
from trainwarden_exporter.collectors.runs.record import failure_verdict
from trainwarden_exporter.core.shared_state import LogVerdict, LogView

KEY = "local:77-1:0"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogsTree]:
    tree = LogsTree(tmp_path)
    tree.runs.metadata("r")
    yield tree
    tree.state.close()


def fail(logs: LogsTree, **error: Any) -> None:
    """The attempt ends in failure."""
    document = {"attempt_key": KEY, "attempt": 0, "time": to_iso(logs.runs.now), "message": "it ended", **error}
    logs.runs.write("r", "_error", document)
    logs.runs.metadata("r", status="failed")


@pytest.mark.parametrize("slug", ["nonzero_exit", "killed", "launcher_child", None])
def test_where_the_record_has_only_the_end_the_log_names_the_cause(logs: LogsTree, slug: str | None) -> None:
    logs.write("r", "hello\n")
    logs.look()
    logs.write("r", OOM)
    fail(logs, failure=slug)
    logs.look()
    shown = logs.labels("training_failure_info", "r")
    assert (shown["error_type"], shown["failure"], shown["attempt"]) == ("oom", "cuda_oom", "0")
    assert logs.labels("training_failure_message_info", "r")["message"] == OOM.strip()


def test_a_message_of_a_status_is_no_cause(logs: LogsTree) -> None:
    logs.write("r", OOM)
    logs.look()
    fail(logs, message="Training failed with exit code 1")
    logs.look()
    assert logs.labels("training_failure_info", "r")["failure"] == "cuda_oom"


def test_a_log_that_cannot_be_read_keeps_the_others_from_nothing(logs: LogsTree) -> None:
    (logs.write("r", OOM).parent / "foreign.txt").symlink_to("/etc/hostname")
    logs.look()
    fail(logs, failure="nonzero_exit")
    logs.look()
    assert logs.labels("training_failure_info", "r")["failure"] == "cuda_oom"


def test_what_the_library_recorded_wins(logs: LogsTree) -> None:
    logs.write("r", OOM)
    logs.look()
    fail(logs, failure="storage_quota", error_type="storage", message="disk full")
    logs.look()
    assert logs.labels("training_failure_info", "r")["failure"] == "storage_quota"
    assert logs.labels("training_failure_message_info", "r")["message"] == "disk full"


@pytest.mark.parametrize(
    ("own", "found", "shown"),
    [
        ("storage_quota", "cuda_oom", "storage_quota"),
        ("user_exception", "cuda_oom", "user_exception"),
        ("killed", "cuda_oom", "cuda_oom"),
        ("killed", "nonzero_exit", "killed"),
        ("nonzero_exit", "crash_signal", "crash_signal"),
        ("nonzero_exit", "launcher_child", "nonzero_exit"),
        ("nccl_remote_closed", "gpu_lost", "gpu_lost"),
        ("", "cuda_oom", "cuda_oom"),
    ],
)
def test_the_log_counts_only_where_the_record_names_no_cause(logs: LogsTree, own: str, found: str, shown: str) -> None:
    fail(logs, failure=own)
    record = RunFolder(logs.folder / "runs" / "r", Thresholds()).read(logs.runs.now)
    cause = LogVerdict("type", found, "", "critical", "it said so", "", "signal", "root")
    logs.shared.views = {"r": LogView(KEY, True, cause, None, None, logs.runs.now)}
    assert LogEvidence(logs.shared, logs_followed=True).refine(record, failure_verdict(record)).failure == shown


def test_a_log_without_a_cause_leaves_that_of_the_record(logs: LogsTree) -> None:
    logs.write("r", "hello\n")
    logs.look()
    fail(logs, failure="nonzero_exit")
    logs.look()
    assert logs.labels("training_failure_info", "r")["failure"] == "nonzero_exit"


def test_the_failure_is_shown_together_with_its_cause_and_not_before(logs: LogsTree) -> None:
    logs.write("r", "hello\n")
    logs.look()
    logs.write("r", OOM)
    fail(logs, failure="nonzero_exit")
    logs.runs.now += 1
    assert (logs.runs.state("r"), logs.runs.labels("training_failure_info", "r")) == ("running", {})
    logs.look()
    assert (logs.runs.state("r"), logs.runs.labels("training_failure_info", "r")["error_type"]) == ("failed", "oom")


def test_a_failure_waits_for_logs_that_cannot_be_read_only_so_long(logs: LogsTree) -> None:
    logs.look()
    fail(logs, failure="nonzero_exit")
    for _ in range(9):
        logs.runs.now += 1
        state = logs.runs.state("r")  # the collector of logs hangs
    assert state == "failed"
    assert logs.runs.labels("training_failure_info", "r")["failure"] == "nonzero_exit"


def test_a_verdict_never_changes_not_even_over_a_restart(logs: LogsTree) -> None:
    logs.write("r", OOM)
    logs.look()
    fail(logs, failure="nonzero_exit")
    logs.look()
    logs.restart()
    path = logs.folder / "runs" / "r" / "logs" / "training_log_latest.txt"
    path.write_text("OSError: [Errno 28] No space left on device\n")
    logs.look()
    logs.look(20)
    assert logs.labels("training_failure_info", "r")["failure"] == "cuda_oom"


def test_the_next_attempt_gets_a_verdict_of_its_own(logs: LogsTree) -> None:
    logs.write("r", OOM)
    logs.look()
    fail(logs, failure="nonzero_exit")
    logs.look()
    start = to_iso(logs.runs.now + 10)
    (logs.folder / "runs" / "r" / "_error").unlink()
    logs.look(60)
    again = {"attempt": 1, "attempt_key": "local:77-1:1", "attempt_start_time": start}
    logs.runs.metadata("r", **again)
    logs.look()
    logs.write("r", "OSError: [Errno 28] No space left on device\n")
    logs.runs.metadata("r", status="failed", **again)
    logs.look()
    shown = logs.labels("training_failure_info", "r")
    assert (shown["attempt"], shown["failure"]) == ("1", "storage_quota")
    assert logs.count("r", "cuda_oom") == 1


def test_what_the_training_got_over_is_no_cause(logs: LogsTree) -> None:
    logs.write("r", OOM)
    logs.look()
    for step in range(10, 15):
        logs.write("r", f"step: {step}/100 loss: 1.5\n")
        logs.look()
    logs.write("r", "OSError: [Errno 28] No space left on device\n")
    fail(logs, failure="nonzero_exit")
    logs.look()
    assert logs.labels("training_failure_info", "r")["failure"] == "storage_quota"


def test_a_loop_that_stands_still_is_explained_by_its_log(logs: LogsTree) -> None:
    logs.runs.progress("r", step=5)
    logs.write("r", OOM)
    logs.look()
    assert logs.labels("training_failure_message_info", "r") == {}
    logs.look(590)
    logs.look()
    shown = logs.labels("training_failure_message_info", "r")
    assert shown["message"] == OOM.strip()
    assert shown["hint"]


def test_progress_comes_from_the_log_only_where_none_is_recorded(logs: LogsTree) -> None:
    logs.write("r", "step: 6/100 loss: 1.5\n")
    logs.look()
    assert (logs.value("training_step", run_id="r"), logs.value("training_loss", run_id="r")) == (6, 1.5)
    assert logs.value("training_step_timestamp_seconds", run_id="r") is None
    logs.runs.progress("r", step=7)
    logs.look()
    assert (logs.value("training_step", run_id="r"), logs.value("training_loss", run_id="r")) == (7, 2.5)


def test_progress_of_a_log_stays_while_scrapes_and_with_them_its_samples_are_a_minute_apart(logs: LogsTree) -> None:
    logs.write("r", "step: 6/100 loss: 1.5\n")
    logs.look()
    for seconds, shown in ((61.0, 6), (600.0, None)):  # the second: the reader of the logs hangs
        logs.runs.now += seconds
        logs.runs.metadata("r")
        assert logs.runs.value("training_step", run_id="r") == shown


def test_a_folder_with_a_log_that_moves_is_not_taken_for_one_that_never_started(logs: LogsTree) -> None:
    logs.write("bare", "hello\n")
    logs.look()
    assert logs.value("training_run_state", run_id="bare", state="pending") == 1
    logs.write("bare", "step: 6/100 loss: 1.5\n")
    logs.look()
    assert logs.value("training_run_state", run_id="bare", state="pending") is None
    assert logs.value("training_step", run_id="bare") == 6


def test_starts_and_changes_of_state_are_logged(logs: LogsTree, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trainwarden_exporter.collectors.runs.attempts")
    logs.look()
    logs.look()
    fail(logs, failure="cuda_oom", error_type="oom")
    logs.look()
    assert [record.getMessage() for record in caplog.records if "run_" in record.getMessage()] == [
        f"run_started run_id=r attempt=0 key={KEY}",
        f"run_state_changed run_id=r attempt=0 key={KEY} old=running new=failed",
    ]
