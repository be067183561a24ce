"""Records of other tools, runs that never started, and runs of long ago."""

from __future__ import annotations

from tests.cases import cases
from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso

DAY = 24 * 3600.0


def test_an_empty_folder_is_a_run_that_waits_since_its_folder_changed(runs: RunsTree) -> None:
    runs.folder("r", modified=NOW - 700)
    assert runs.state("r") == "pending"
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r") == NOW - 700
    assert runs.labels("training_run_info", "r")["run_id"] == "r"
    assert runs.heartbeat("r", "metadata") is None


def test_a_pending_record_waits_since_the_time_it_states(runs: RunsTree) -> None:
    runs.metadata("r", status="pending", attempt_start_time=None, start_time=to_iso(NOW - 50), last_update=None)
    assert runs.state("r") == "pending"
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r") == NOW - 50


def test_a_folder_whose_metadata_cannot_be_read_is_not_taken_for_empty(runs: RunsTree) -> None:
    runs.write("r", "metadata.json", "[]")
    assert runs.state("r") is None
    assert runs.value("trainwarden_runs_unreadable", reason="unreadable") == 1


@cases("status", ["running", "succeeded", "failed"], runs=RunsTree)
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


def test_a_time_far_in_the_future_does_not_count(runs: RunsTree) -> None:
    runs.metadata("r", last_update="9999-01-01T00:00:00Z")
    assert runs.heartbeat("r", "metadata") is None
    runs.now = NOW + 2 * DAY
    assert runs.state("r") is None


# Records of other tools


def test_a_foreign_record_works_with_the_first_line_of_keys_alone(runs: RunsTree) -> None:
    runs.foreign("f")
    assert runs.state("f") == "running"
    assert runs.value("training_phase", run_id="f", phase="train") == 1
    assert runs.heartbeat("f", "metadata") == NOW
    assert runs.heartbeat("f", "progress") == NOW
    assert runs.value("training_step", run_id="f") == 5
    assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW


def test_a_foreign_monitor_that_writes_the_same_step_for_ever_does_not_make_it_advance(runs: RunsTree) -> None:
    runs.foreign("f")
    assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW
    for _ in range(3):
        runs.now += 100
        runs.foreign("f")
        assert runs.heartbeat("f", "progress") == runs.now
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


def test_a_foreign_loop_that_is_set_back_moves_and_does_not_advance(runs: RunsTree) -> None:
    for seconds, key, step in ((0, "k", 50), (60, "k", 40), (60, "k", 45)):
        runs.now += seconds
        runs.foreign("f", step=step, attempt_key=key)
        runs.samples()
    assert runs.value("training_step_timestamp_seconds", run_id="f") == NOW
    assert runs.value("training_step_change_timestamp_seconds", run_id="f") == NOW + 120
    runs.now += 60
    runs.foreign("f", step=45, attempt_key="k")
    assert runs.value("training_step_change_timestamp_seconds", run_id="f") == NOW + 120


def test_a_zone_may_be_missing_or_differ(runs: RunsTree) -> None:
    runs.metadata("r", last_update="2027-01-15T08:00:00")
    assert runs.heartbeat("r", "metadata") == NOW
    runs.metadata("r", last_update="2027-01-15T09:00:00+01:00")
    assert runs.heartbeat("r", "metadata") == NOW
