"""Ranks that were ended from outside do not know why; their scheduler does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden_exporter.core.exchange import RunExchange

if TYPE_CHECKING:
    from pathlib import Path

KEY = "slurm:7:0"


@pytest.fixture
def exchange() -> RunExchange:
    exchange = RunExchange()
    exchange.put_ended_jobs({})
    return exchange


@pytest.fixture
def runs(tmp_path: Path, exchange: RunExchange) -> RunsTree:
    tree = RunsTree(tmp_path, exchange)
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
def test_what_a_user_or_the_scheduler_ended_is_no_failure(runs: RunsTree, exchange: RunExchange, state: str) -> None:
    # Until the scheduler has ended the job, the run is shown as before.
    assert (runs.state("r"), failure(runs)) == ("running", None)
    exchange.put_ended_jobs({KEY: state})
    assert (runs.state("r"), failure(runs)) == ("cancelled", None)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("node_fail", "node_fail"), ("out_of_memory", "host_oom"), ("failed", "terminated"), ("completed", "terminated")],
)
def test_a_failure_has_the_cause_that_the_scheduler_states(
    runs: RunsTree, exchange: RunExchange, state: str, expected: str
) -> None:
    exchange.put_ended_jobs({KEY: state})
    assert (runs.state("r"), failure(runs)) == ("failed", expected)


def test_a_scheduler_that_does_not_end_the_job_is_not_waited_for_without_end(runs: RunsTree) -> None:
    runs.now = NOW + 89
    assert runs.state("r") == "running"
    runs.now = NOW + 91
    assert (runs.state("r"), failure(runs)) == ("failed", "terminated")


def test_the_end_of_another_start_of_the_job_does_not_count(runs: RunsTree, exchange: RunExchange) -> None:
    exchange.put_ended_jobs({"slurm:7:1": "cancelled", "slurm:8:0": "cancelled"})
    runs.now = NOW + 91
    assert runs.state("r") == "failed"


def test_a_failure_that_names_itself_needs_no_scheduler(runs: RunsTree, exchange: RunExchange) -> None:
    exchange.put_ended_jobs({KEY: "cancelled"})
    end(runs, failure="cuda_oom")
    assert (runs.state("r"), failure(runs)) == ("failed", "cuda_oom")


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
