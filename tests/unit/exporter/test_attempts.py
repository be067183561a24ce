"""Evidence about one attempt is never told of another."""

from __future__ import annotations

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso


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


def test_the_progress_of_an_older_attempt_shows_only_what_holds_across_attempts(runs: RunsTree) -> None:
    runs.metadata("r", attempt=1, attempt_key="local:77-1:1", phase="init")
    runs.progress("r", high_water=120, steps_completed=120)
    assert runs.heartbeat("r", "progress") is None
    assert runs.value("training_step", run_id="r") is None
    assert runs.value("training_step_timestamp_seconds", run_id="r") is None
    assert runs.value("training_step_high_water", run_id="r") == 120
    assert runs.value("training_steps_completed_total", run_id="r") == 120


# Sentinels


def test_an_error_of_the_attempt_means_failed_whatever_the_metadata_holds(runs: RunsTree) -> None:
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


def test_a_finished_run_shows_it_and_when(runs: RunsTree) -> None:
    runs.metadata("r", phase="done")
    runs.write("r", "_complete", {"attempt_key": "local:77-1:0", "time": to_iso(NOW - 8), "step": 1000})
    assert runs.state("r") == "succeeded"
    assert runs.value("training_run_end_timestamp_seconds", run_id="r") == NOW - 8


def test_while_the_owner_of_the_record_is_unknown_no_sentinel_counts(runs: RunsTree) -> None:
    runs.write("r", "metadata.json", "{half a docu")
    runs.write("r", "_error", "boom")
    assert runs.state("r") is None
