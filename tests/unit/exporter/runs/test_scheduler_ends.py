"""Ranks that were ended from outside do not know why; their scheduler does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import cases
from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden_exporter.core.shared_state import JobEnd

if TYPE_CHECKING:
    from pathlib import Path

KEY = "slurm:7:0"


def runs_in(folder: Path) -> RunsTree:
    tree = RunsTree(folder)
    tree.shared.put_ended_jobs({})
    tree.metadata("r", scheduler="slurm", job_id="7", attempt_key=KEY)
    assert tree.state("r") == "running"
    end(tree)
    return tree


@pytest.fixture
def runs(tmp_path: Path) -> RunsTree:
    return runs_in(tmp_path)


def end(runs: RunsTree, key: str = KEY, failure: str = "terminated", **more: Any) -> None:
    scheduler, job_id, _ = key.split(":")
    runs.metadata("r", status="failed", scheduler=scheduler, job_id=job_id, attempt_key=key, end_time=to_iso(NOW))
    error = {"message": "ended from outside (SIGTERM), cause unknown", "failure": failure, "error_type": "unknown"}
    runs.write("r", "_error", {**error, "attempt_key": key, "attempt": 0, "time": to_iso(NOW), **more})


def failure(runs: RunsTree) -> str | None:
    return runs.labels("training_failure_info", "r").get("failure")


@cases("state", ["cancelled", "timeout", "deadline", "preempted"], runs=runs_in)
def test_what_a_user_or_the_scheduler_ended_is_no_failure(runs: RunsTree, state: str) -> None:
    # Until the scheduler has ended the job, the run is shown as before.
    assert (runs.state("r"), failure(runs)) == ("running", None)
    runs.shared.put_ended_jobs({KEY: JobEnd(state, NOW)})
    assert (runs.state("r"), failure(runs)) == ("cancelled", None)


@cases(
    ("state", "expected"),
    [("node_fail", "node_fail"), ("out_of_memory", "host_oom"), ("failed", "terminated"), ("completed", "terminated")],
    runs=runs_in,
)
def test_a_failure_has_the_cause_that_the_scheduler_states(runs: RunsTree, state: str, expected: str) -> None:
    runs.shared.put_ended_jobs({KEY: JobEnd(state, NOW)})
    assert (runs.state("r"), failure(runs)) == ("failed", expected)


def test_a_scheduler_that_does_not_end_the_job_is_not_waited_for_without_end(runs: RunsTree) -> None:
    runs.now = NOW + 89
    assert runs.state("r") == "running"
    runs.now = NOW + 91
    assert (runs.state("r"), failure(runs)) == ("failed", "terminated")


def test_the_end_of_another_start_of_the_job_does_not_count(runs: RunsTree) -> None:
    runs.shared.put_ended_jobs({"slurm:7:1": JobEnd("cancelled", NOW), "slurm:8:0": JobEnd("cancelled", NOW)})
    runs.now = NOW + 91
    assert runs.state("r") == "failed"


def test_a_failure_that_names_itself_needs_no_scheduler(runs: RunsTree) -> None:
    runs.shared.put_ended_jobs({KEY: JobEnd("cancelled", NOW)})
    end(runs, failure="cuda_oom")
    assert (runs.state("r"), failure(runs)) == ("failed", "cuda_oom")


PEER = {"failure": "peer_reset", "error_type": "communication"}


@cases("state", ["cancelled", "timeout", "preempted"])
@cases("seconds", [-9, 0, 89], runs=runs_in)
def test_a_peer_that_ended_first_because_the_job_was_ended_is_no_failure(
    runs: RunsTree, state: str, seconds: int
) -> None:
    end(runs, **PEER)
    assert (runs.state("r"), failure(runs)) == ("failed", "peer_reset")  # a crash is not held back
    runs.shared.put_ended_jobs({KEY: JobEnd(state, NOW - seconds)})
    assert (runs.state("r"), failure(runs)) == ("cancelled", None)


@cases("ended", [NOW + 11, NOW - 91, None], runs=runs_in)
def test_a_run_that_failed_before_its_job_was_cancelled_has_failed(runs: RunsTree, ended: float | None) -> None:
    end(runs, **PEER)
    runs.shared.put_ended_jobs({KEY: JobEnd("cancelled", ended)})
    assert (runs.state("r"), failure(runs)) == ("failed", "peer_reset")


def test_a_lost_peer_keeps_its_failure_where_the_node_failed(runs: RunsTree) -> None:
    end(runs, **PEER)
    runs.shared.put_ended_jobs({KEY: JobEnd("node_fail", NOW)})
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
