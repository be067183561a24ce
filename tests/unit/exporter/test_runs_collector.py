"""Which series a run's record becomes, and when."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.clock import to_iso
from trainwarden.thresholds import Thresholds

DAY = 24 * 3600.0


def beats(runs: RunsTree, source: str, run_id: str = "r") -> float | None:
    return runs.value("training_heartbeat_timestamp_seconds", run_id=run_id, source=source)


def test_a_running_record_becomes_its_core_series(runs: RunsTree) -> None:
    runs.metadata("r", attempt=2, phase="eval", framework="torch", model="m", method="sft")
    runs.progress("r", high_water=130, steps_completed=250, nonfinite=1, epoch=1.5, grad_norm=0.7)
    assert runs.state("r") == "running"
    assert runs.labels("training_run_info", "r") == {
        "run_id": "r",
        "attempt_key": "local:77-1:0",
        "job_id": "77-1",
        "scheduler": "local",
        "framework": "torch",
        "model": "m",
        "method": "sft",
        "instance_id": "i-0abc",
        "host": "node1",
    }
    assert runs.value("training_run_attempt", run_id="r") == 2
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r") == NOW - 600
    assert runs.value("training_phase", run_id="r", phase="eval") == 1
    assert runs.value("training_phase", run_id="r", phase="train") == 0
    assert runs.value("training_phase_start_timestamp_seconds", run_id="r") == NOW - 500
    assert runs.value("training_step", run_id="r") == 120
    assert runs.value("training_steps_target", run_id="r") == 1000
    assert runs.value("training_step_high_water", run_id="r") == 130
    assert runs.value("training_steps_completed_total", run_id="r") == 250
    assert runs.value("training_nonfinite_total", run_id="r") == 1
    assert runs.value("training_step_timestamp_seconds", run_id="r") == NOW - 3
    assert runs.value("training_epoch", run_id="r") == 1.5
    assert runs.value("training_grad_norm", run_id="r") == 0.7


def test_what_a_record_does_not_say_is_not_exported(runs: RunsTree) -> None:
    runs.metadata("r", attempt=None, phase_time=None)
    runs.progress("r", loss=None, step_time=None, step=None)
    samples = runs.samples()
    for name in (
        "training_run_attempt",
        "training_phase_start_timestamp_seconds",
        "training_loss",
        "training_step",
        "training_step_timestamp_seconds",
        "training_epoch",
        "training_checkpoint_step",
        "training_run_end_timestamp_seconds",
        "training_failure_info",
        "training_failure_message_info",
    ):
        assert name not in samples


def test_an_age_is_the_distance_to_the_clock(runs: RunsTree) -> None:
    runs.metadata("r", last_update=to_iso(NOW - 42))
    assert runs.value("training_heartbeat_age_seconds", run_id="r", source="metadata") == pytest.approx(42)


def test_a_checkpoint_becomes_its_series(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.progress("r", checkpoint={"path": "/c/1", "step": 100, "time": to_iso(NOW - 9), "size_bytes": 7, "count": 3})
    assert runs.value("training_checkpoint_step", run_id="r") == 100
    assert runs.value("training_checkpoint_timestamp_seconds", run_id="r") == NOW - 9
    assert runs.value("training_checkpoint_size_bytes", run_id="r") == 7
    assert runs.value("training_checkpoints_total", run_id="r") == 3


def test_thresholds_are_the_records_own(runs: RunsTree) -> None:
    runs.metadata("r", thresholds={"stale_seconds": 90, "stall_seconds": {"train": 10}})
    assert runs.value("training_stale_threshold_seconds", run_id="r") == 90
    assert runs.value("training_stall_threshold_seconds", run_id="r", phase="train") == 10
    assert runs.value("training_stall_threshold_seconds", run_id="r", phase="init") == 1800
    assert runs.value("training_stall_threshold_seconds", run_id="r", phase="idle") is None


def test_a_foreign_record_gets_the_thresholds_of_the_exporter(make_runs: Callable[..., RunsTree]) -> None:
    runs = make_runs(defaults=Thresholds(stale_seconds=120.0))
    runs.foreign("f")
    runs.metadata("ours")
    assert runs.value("training_stale_threshold_seconds", run_id="f") == 120
    assert runs.value("training_stale_threshold_seconds", run_id="ours") == 600


# Which exporter tells of a run


def test_a_run_of_another_host_is_left_to_that_hosts_exporter_but_its_own_ranks_are_told(runs: RunsTree) -> None:
    runs.metadata("r", host="node0")
    runs.progress("r")
    runs.rank("r", 0, host="node0")
    runs.rank("r", 1)
    samples = runs.samples()
    assert "training_run_state" not in samples
    assert "training_step" not in samples
    assert runs.value("training_rank_step", run_id="r", rank="1") == 120
    assert runs.value("training_rank_step", run_id="r", rank="0") is None


def test_two_exporters_over_one_folder_export_no_series_twice(make_runs: Callable[..., RunsTree]) -> None:
    first, second = make_runs(), make_runs(host="node2")
    first.metadata("a")
    first.progress("a")
    first.metadata("b", host="node2")
    first.rank("a", 0)
    first.rank("a", 1, host="node2")
    own = {"trainwarden_runs", "trainwarden_runs_unreadable"}
    told = [
        {(name, labels) for name, found in tree.samples().items() if name not in own for labels in found}
        for tree in (first, second)
    ]
    assert told[0]
    assert told[1]
    assert not told[0] & told[1]


def test_scope_all_tells_of_every_host(make_runs: Callable[..., RunsTree]) -> None:
    runs = make_runs(all_hosts=True, host="head")
    runs.metadata("r")
    runs.rank("r", 3, host="node9")
    assert runs.state("r") == "running"
    assert runs.value("training_rank_step", run_id="r", rank="3") == 120


def test_a_nodes_own_folder_with_nothing_but_ranks_is_no_run_that_never_started(runs: RunsTree) -> None:
    runs.rank("r", 4)
    assert runs.state("r") is None
    assert runs.value("training_rank_step", run_id="r", rank="4") == 120


# Attempts


def test_a_rank_of_an_older_attempt_vanishes_after_the_restart(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.rank("r", 0)
    runs.rank("r", 1)
    assert runs.value("training_rank_step", run_id="r", rank="1") == 120
    runs.metadata("r", attempt=1, attempt_key="local:77-1:1")
    runs.rank("r", 0, attempt_key="local:77-1:1")
    assert runs.value("training_rank_step", run_id="r", rank="0") == 120
    assert runs.value("training_rank_step", run_id="r", rank="1") is None


def test_without_a_record_the_newest_attempt_of_the_ranks_counts(runs: RunsTree) -> None:
    runs.rank("r", 0, attempt_key="slurm:1:1")
    runs.rank("r", 7, attempt_key="slurm:1:0", time=to_iso(NOW - 50))
    assert runs.value("training_rank_step", run_id="r", rank="0") == 120
    assert runs.value("training_rank_step", run_id="r", rank="7") is None


def test_the_progress_of_an_older_attempt_tells_only_what_holds_across_attempts(runs: RunsTree) -> None:
    runs.metadata("r", attempt=1, attempt_key="local:77-1:1", phase="init")
    runs.progress("r", high_water=120, steps_completed=120)
    assert beats(runs, "progress") is None
    assert runs.value("training_step", run_id="r") is None
    assert runs.value("training_step_timestamp_seconds", run_id="r") is None
    assert runs.value("training_step_high_water", run_id="r") == 120
    assert runs.value("training_steps_completed_total", run_id="r") == 120


# Sentinels


def test_an_error_of_the_attempt_means_failed_whatever_the_metadata_says(runs: RunsTree) -> None:
    runs.metadata("r", attempt=3)
    runs.write(
        "r",
        "_error",
        {
            "attempt_key": "local:77-1:0",
            "time": to_iso(NOW - 5),
            "message": "peer reset",
            "error_type": "communication",
            "failure": "peer_reset",
            "subsystem": "distributed",
            "severity": "error",
            "hint": "look at rank 1",
        },
    )
    assert runs.state("r") == "failed"
    assert runs.labels("training_failure_info", "r") == {
        "run_id": "r",
        "attempt": "3",
        "error_type": "communication",
        "failure": "peer_reset",
        "subsystem": "distributed",
        "severity": "error",
    }
    assert runs.value("training_failure_timestamp_seconds", run_id="r") == NOW - 5
    assert runs.value("training_run_end_timestamp_seconds", run_id="r") == NOW - 5
    words = runs.labels("training_failure_message_info", "r")
    assert (words["message"], words["hint"]) == ("peer reset", "look at rank 1")


def test_an_error_of_another_attempt_is_ignored(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.write("r", "_error", {"attempt_key": "local:1-1:0", "time": to_iso(NOW), "message": "old"})
    assert runs.state("r") == "running"
    assert runs.labels("training_failure_info", "r") == {}


def test_an_error_counts_again_when_the_record_goes_to_its_attempt(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.write("r", "_error", {"attempt_key": "local:77-1:1", "time": to_iso(NOW), "message": "new"})
    assert runs.state("r") == "running"
    runs.metadata("r", attempt=1, attempt_key="local:77-1:1")
    assert runs.state("r") == "failed"


@pytest.mark.parametrize(("written", "state"), [(NOW - 601, "running"), (NOW - 1, "failed")])
def test_a_plain_text_error_counts_only_if_newer_than_the_attempt(runs: RunsTree, written: float, state: str) -> None:
    runs.metadata("r")
    runs.write("r", "_error", "CUDA out of memory. Tried to allocate 2 GiB", modified=written)
    assert runs.state("r") == state


def test_a_plain_text_error_gets_type_and_hint_from_the_taxonomy(runs: RunsTree) -> None:
    runs.foreign("f")
    runs.write("f", "_error", "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB")
    assert runs.labels("training_failure_info", "f")["error_type"] == "oom"
    assert "batch size" in runs.labels("training_failure_message_info", "f")["hint"]


def test_the_verdict_on_an_attempt_is_never_changed(runs: RunsTree) -> None:
    runs.metadata("r")
    error = {"attempt_key": "local:77-1:0", "time": to_iso(NOW), "message": "first", "error_type": "oom"}
    runs.write("r", "_error", error)
    assert runs.labels("training_failure_info", "r")["error_type"] == "oom"
    runs.write("r", "_error", {**error, "message": "second, of another kind", "error_type": "nccl"})
    assert runs.labels("training_failure_info", "r")["error_type"] == "oom"
    runs.metadata("r", attempt=1, attempt_key="local:77-1:1")
    assert runs.labels("training_failure_info", "r") == {}
    runs.write("r", "_error", {**error, "attempt_key": "local:77-1:1", "error_type": "nccl"})
    assert runs.labels("training_failure_info", "r")["error_type"] == "nccl"


def test_a_failure_that_nobody_explains_has_a_verdict_without_type(runs: RunsTree) -> None:
    runs.metadata("r", status="failed", end_time=to_iso(NOW - 4))
    info = runs.labels("training_failure_info", "r")
    assert info == {"run_id": "r", "attempt": "0", "error_type": "", "failure": "", "subsystem": "", "severity": ""}
    assert runs.value("training_failure_timestamp_seconds", run_id="r") == NOW - 4


def test_a_finished_run_says_so_and_when(runs: RunsTree) -> None:
    runs.metadata("r", phase="done")
    runs.write("r", "_complete", {"attempt_key": "local:77-1:0", "time": to_iso(NOW - 8), "step": 1000})
    assert runs.state("r") == "succeeded"
    assert runs.value("training_run_end_timestamp_seconds", run_id="r") == NOW - 8


def test_while_the_owner_of_the_record_is_unknown_no_sentinel_is_believed(runs: RunsTree) -> None:
    runs.write("r", "metadata.json", "{half a docu")
    runs.write("r", "_error", "boom")
    assert runs.state("r") is None


# Runs that never started, and old ones


def test_an_empty_folder_is_a_run_that_waits_since_its_folder_changed(runs: RunsTree) -> None:
    runs.folder("r", modified=NOW - 700)
    assert runs.state("r") == "pending"
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r") == NOW - 700
    assert runs.labels("training_run_info", "r")["run_id"] == "r"
    assert beats(runs, "metadata") is None


def test_a_pending_record_waits_since_it_says(runs: RunsTree) -> None:
    runs.metadata("r", status="pending", attempt_start_time=None, start_time=to_iso(NOW - 50), last_update=None)
    assert runs.state("r") == "pending"
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r") == NOW - 50


def test_a_folder_whose_metadata_cannot_be_read_is_not_taken_for_empty(runs: RunsTree) -> None:
    runs.write("r", "metadata.json", "[]")
    assert runs.state("r") is None
    assert runs.value("trainwarden_runs_unreadable", reason="unreadable") == 1


@pytest.mark.parametrize("status", ["running", "succeeded", "failed"])
def test_a_record_is_silent_a_day_after_its_last_sign_of_life(runs: RunsTree, status: str) -> None:
    runs.metadata("r", status=status)
    runs.progress("r")
    runs.now = NOW + DAY - 1
    assert runs.state("r") == status
    runs.now = NOW + DAY + 1
    assert "training_run_info" not in runs.samples()
    assert runs.value("trainwarden_runs", outcome="expired") == 1


def test_an_old_record_that_comes_to_life_is_exported_again(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.now = NOW + 2 * DAY
    assert runs.state("r") is None
    runs.metadata("r", attempt=1, attempt_start_time=to_iso(runs.now))
    runs.now += 16
    assert runs.state("r") == "running"


def test_a_time_far_in_the_future_is_not_believed(runs: RunsTree) -> None:
    runs.metadata("r", last_update="9999-01-01T00:00:00Z")
    assert beats(runs, "metadata") is None
    runs.now = NOW + 2 * DAY
    assert runs.state("r") is None


# Records of other tools


def test_a_foreign_record_works_with_the_first_line_of_keys_alone(runs: RunsTree) -> None:
    runs.foreign("f")
    assert runs.state("f") == "running"
    assert runs.value("training_phase", run_id="f", phase="train") == 1
    assert beats(runs, "metadata", "f") == NOW
    assert beats(runs, "progress", "f") == NOW
    assert runs.value("training_step", run_id="f") == 5
    assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW


def test_a_foreign_monitor_that_writes_the_same_step_for_ever_does_not_make_it_advance(runs: RunsTree) -> None:
    runs.foreign("f")
    assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW
    for _ in range(3):
        runs.now += 100
        runs.foreign("f")
        assert beats(runs, "progress", "f") == runs.now
        assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW
    runs.now += 100
    runs.foreign("f", step=6)
    assert runs.value("training_step_timestamp_seconds", run_id="f") == runs.now


def test_a_foreign_step_first_seen_late_is_as_old_as_its_record(runs: RunsTree) -> None:
    runs.foreign("f")
    runs.now = NOW + 500
    assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW


def test_a_foreign_run_that_starts_again_from_a_lower_step_advances(runs: RunsTree) -> None:
    runs.foreign("f", step=50)
    runs.samples()
    runs.now += 60
    runs.foreign("f", step=40)
    assert runs.value("training_step_timestamp_seconds", run_id="f") == runs.now


def test_a_zone_may_be_missing_or_differ(runs: RunsTree) -> None:
    runs.metadata("r", last_update="2027-01-15T08:00:00")
    assert beats(runs, "metadata") == NOW
    runs.metadata("r", last_update="2027-01-15T09:00:00+01:00")
    assert beats(runs, "metadata") == NOW


# Last words


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


# Cost


def test_a_file_that_did_not_change_is_not_read_again(runs: RunsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.metadata("r")
    runs.progress("r")
    runs.rank("r", 0)
    runs.now += 10
    assert runs.state("r") == "running"
    opened: list[str] = []
    real_open = os.open

    def noted(path: Any, *rest: Any, **named: Any) -> int:
        opened.append(str(path))
        return real_open(path, *rest, **named)

    monkeypatch.setattr(os, "open", noted)
    assert runs.state("r") == "running"
    assert opened == []
    runs.progress("r", step=121)
    assert runs.value("training_step", run_id="r") == 121
    assert [Path(path).name for path in opened if "runs" in path] == ["progress.json"]


def test_beyond_the_limit_the_runs_with_the_latest_sign_of_life_are_kept(make_runs: Callable[..., RunsTree]) -> None:
    runs = make_runs(limit=2)
    for age, run_id in enumerate("abc"):
        runs.metadata(run_id, last_update=to_iso(NOW - 100 * age))
    assert [runs.state(run_id) for run_id in "abc"] == ["running", "running", None]
    assert runs.value("trainwarden_runs", outcome="dropped") == 1
    assert runs.value("trainwarden_runs", outcome="exported") == 2


def test_a_runs_folder_that_does_not_exist_yet_has_no_runs(runs: RunsTree) -> None:
    assert not runs.path.exists()
    assert runs.value("trainwarden_runs", outcome="exported") == 0
    runs.metadata("r")
    assert runs.state("r") == "running"


def test_a_run_that_is_removed_vanishes(runs: RunsTree) -> None:
    runs.metadata("r")
    assert runs.state("r") == "running"
    (runs.path / "r" / "metadata.json").unlink()
    (runs.path / "r").rmdir()
    assert "training_run_info" not in runs.samples()


def test_a_file_that_becomes_readable_is_read_though_its_content_is_the_same(runs: RunsTree) -> None:
    file = runs.write("r", "metadata.json", b"")
    runs.metadata("r")
    file.chmod(stat.S_IRUSR)
    assert runs.state("r") == "running"
