"""A rank whose interpreter crashed says so in its trace, and nowhere else."""

from __future__ import annotations

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.crash import HEADER_BYTES

_CRASH = 'Fatal Python error: Bus error\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n'


def _trace(runs: RunsTree, text: str, key: str = "local:77-1:0") -> None:
    header = f"attempt_key={key} pid=1 start=1 host=elsewhere".ljust(HEADER_BYTES - 1)
    runs.write("r", "ranks/3.trace", f"{header}\n{text}", modified=NOW - 2)


def test_a_crash_makes_a_run_whose_record_still_shows_running_a_failed_one(runs: RunsTree) -> None:
    runs.metadata("r")
    _trace(runs, "")
    assert runs.state("r") == "running"
    _trace(runs, _CRASH)
    assert runs.state("r") == "failed"
    failure = runs.labels("training_failure_info", "r")
    assert (failure["failure"], failure["subsystem"], failure["severity"]) == ("crash_signal", "process", "critical")
    assert runs.labels("training_failure_message_info", "r")["message"] == "rank 3 crashed in a.py:3 (f): Bus error"
    assert runs.value("training_failure_timestamp_seconds", run_id="r") == NOW - 2


def test_the_crash_of_an_older_attempt_is_not_this_ones(runs: RunsTree) -> None:
    runs.metadata("r")
    _trace(runs, _CRASH, key="local:77-0:0")
    assert runs.state("r") == "running"


def test_the_end_that_a_run_recorded_itself_counts(runs: RunsTree) -> None:
    runs.metadata("r", status="cancelled", reason="SIGTERM")
    _trace(runs, _CRASH)
    assert runs.state("r") == "cancelled"
