"""A clock of the node that is set, by hours or a year, while runs are looked at: nothing waits for the time before."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cases import cases
from tests.unit.exporter.logs_tree import OOM, LogsTree
from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden.signals.tailing.template import Template

HOURS, YEAR = 7 * 3600.0, 365 * 86400.0


def test_a_run_that_had_expired_by_a_wrong_clock_is_shown_once_the_clock_is_right(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r")
    tree.set_by = YEAR
    assert tree.state("r") is None
    tree.set_by = 0.0
    tree.now += 16
    assert tree.state("r") == "running"


def test_an_attempt_is_counted_once_though_its_run_had_expired_meanwhile(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r")
    tree.samples()
    tree.metadata("r", status="completed", end_time=to_iso(NOW))
    for ahead in (0.0, YEAR, 0.0):
        tree.set_by = ahead
        tree.now += 16
        tree.samples()
    assert tree.value("training_run_duration_seconds_count", state="succeeded") == 1


def test_a_failure_is_shown_though_the_clock_was_set_back_while_its_logs_were_read(tmp_path: Path) -> None:
    logs = LogsTree(tmp_path, roots=())  # no log may be read, so that none names the cause
    logs.runs.metadata("r")
    logs.look()
    error = {"attempt_key": "local:77-1:0", "attempt": 0, "time": to_iso(NOW), "failure": "nonzero_exit"}
    logs.runs.write("r", "_error", error)
    logs.runs.metadata("r", status="failed")
    list(logs.runs.collector.collect())
    logs.runs.set_by = -HOURS
    logs.runs.now += 9
    list(logs.runs.collector.collect())
    assert logs.runs.state("r") == "failed"
    logs.state.close()


@cases("ahead", [-HOURS, HOURS, -YEAR])
def test_logs_without_a_record_are_found_and_those_of_an_ended_run_read_on(tmp_path: Path, ahead: float) -> None:
    logs = LogsTree(tmp_path, templates=(Template.parse(f"{tmp_path}/out/{{run_id}}.out"),))
    (tmp_path / "out").mkdir()
    logs.runs.metadata("r", status="completed", end_time=to_iso(NOW))
    logs.write("r", "hello\n")
    for _ in range(2):
        logs.look()
    logs.runs.set_by = ahead
    if ahead > -YEAR:  # else the record is of a time that has not come
        logs.write("r", OOM)
    (tmp_path / "out/new.out").write_text(OOM)
    os.utime(tmp_path / "out/new.out", (logs.runs.wall(), logs.runs.wall()))
    logs.look(16)
    logs.look()
    assert logs.count("new", "cuda_oom") == 1
    if ahead > -YEAR:
        assert logs.count("r", "cuda_oom") == 1
    logs.state.close()
