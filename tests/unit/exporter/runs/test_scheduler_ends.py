"""Ranks that were ended from outside do not know why; their scheduler does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden_exporter.core.shared_state import JobEnd, SharedState

if TYPE_CHECKING:
    from pathlib import Path

KEY = "slurm:7:0"


@pytest.fixture
def shared() -> SharedState:
    shared = SharedState()
    shared.put_ended_jobs({})
    return shared


@pytest.fixture
def runs(tmp_path: Path, shared: SharedState) -> RunsTree:
    tree = RunsTree(tmp_path, shared)
    tree.metadata("r", scheduler="slurm", job_id="7", attempt_key=KEY)
    assert tree.state("r") == "running"
    end(tree)
    return tree


def end(runs: RunsTree, key: str = KEY, failure: str = "terminated", **more: Any) -> None:
    scheduler, job_id, _ = key.split(":")
    runs.metadata("r", status="failed", scheduler=scheduler, job_id=job_id, attempt_key=key, end_time=to_iso(NOW))
    error = {"message": "ended from outside (SIGTERM), cause unknown", "failure": failure, "error_type": "unknown"}
    runs.write("r", "_error", {**error, "attempt_key": key, "attempt": 0, "time": to_iso(NOW), **more})


def failure(runs: RunsTree) -> str | None:
    return runs.labels("training_failure_info", "r").get("failure")


@pytest.mark.parametrize("state", ["cancelled", "timeout", "deadline", "preempted"])
def test_what_a_user_or_the_scheduler_ended_is_no_failure(runs: RunsTree, shared: SharedState, state: str) -> None:
    # Until the scheduler has ended the job, the run is shown as before.
    assert (runs.state("r"), failure(runs)) == ("running", None)
    shared.put_ended_jobs({KEY: JobEnd(state, NOW)})
    assert (runs.state("r"), failure(runs)) == ("cancelled", None)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("node_fail", "node_fail"), ("out_of_memory", "host_oom"), ("failed", "terminated"), ("completed", "terminated")],
)
def test_a_failure_has_the_cause_that_the_scheduler_states(
    runs: RunsTree, shared: SharedState, state: str, expected: str
) -> None:
    shared.put_ended_jobs({KEY: JobEnd(state, NOW)})
    assert (runs.state("r"), failure(runs)) == ("failed", expected)


def test_a_scheduler_that_does_not_end_the_job_is_not_waited_for_without_end(runs: RunsTree) -> None:
    runs.now = NOW + 89
    assert runs.state("r") == "running"
    runs.now = NOW + 91
    assert (runs.state("r"), failure(runs)) == ("failed", "terminated")


def test_the_end_of_another_start_of_the_job_does_not_count(runs: RunsTree, shared: SharedState) -> None:
    shared.put_ended_jobs({"slurm:7:1": JobEnd("cancelled", NOW), "slurm:8:0": JobEnd("cancelled", NOW)})
    runs.now = NOW + 91
    assert runs.state("r") == "failed"


def test_a_failure_that_names_itself_needs_no_scheduler(runs: RunsTree, shared: SharedState) -> None:
    shared.put_ended_jobs({KEY: JobEnd("cancelled", NOW)})
    end(runs, failure="cuda_oom")
    assert (runs.state("r"), failure(runs)) == ("failed", "cuda_oom")


PEER = {"failure": "peer_reset", "error_type": "communication"}


@pytest.mark.parametrize("state", ["cancelled", "timeout", "preempted"])
@pytest.mark.parametrize("seconds", [-9, 0, 89])
def test_a_peer_that_ended_first_because_the_job_was_ended_is_no_failure(
    runs: RunsTree, shared: SharedState, state: str, seconds: int
) -> None:
    end(runs, **PEER)
    assert (runs.state("r"), failure(runs)) == ("failed", "peer_reset")  # a crash is not held back
    shared.put_ended_jobs({KEY: JobEnd(state, NOW - seconds)})
    assert (runs.state("r"), failure(runs)) == ("cancelled", None)


@pytest.mark.parametrize("ended", [NOW + 11, NOW - 91, None])
def test_a_run_that_failed_before_its_job_was_cancelled_has_failed(
    runs: RunsTree, shared: SharedState, ended: float | None
) -> None:
    end(runs, **PEER)
    shared.put_ended_jobs({KEY: JobEnd("cancelled", ended)})
    assert (runs.state("r"), failure(runs)) == ("failed", "peer_reset")


def test_a_lost_peer_keeps_its_failure_where_the_node_failed(runs: RunsTree, shared: SharedState) -> None:
    end(runs, **PEER)
    shared.put_ended_jobs({KEY: JobEnd("node_fail", NOW)})
    assert (runs.state("r"), failure(runs)) == ("failed", "peer_reset")


def test_an_error_that_replaces_the_unknown_cause_is_shown(runs: RunsTree) -> None:
    runs.now = NOW + 91
    assert failure(runs) == "terminated"
    end(runs, failure="cuda_oom")
    assert failure(runs) == "cuda_oom"


@pytest.mark.parametrize("key", [KEY, "torchrun:7:0"])
def test_nothing_is_waited_for_where_no_scheduler_is_read(tmp_path: Path, key: str) -> None:
    runs = RunsTree(tmp_path)
    end(runs, key)
    assert (runs.state("r"), failure(runs)) == ("failed", "terminated")
