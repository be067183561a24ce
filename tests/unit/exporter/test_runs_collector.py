"""Which series a run's record becomes, and when."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.exporter.runs_tree import HOST, NOW, RunsTree, opened_files
from trainwarden.record.clock import to_iso
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.limits import RunLimits


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
        "policy": "",
    }
    assert runs.value("training_run_attempt", run_id="r") == 2
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r") == NOW - 600
    assert runs.value("training_phase", run_id="r", phase="eval") == 1
    assert runs.value("training_phase", run_id="r", phase="train") is None
    assert runs.value("training_phase_start_timestamp_seconds", run_id="r") == NOW - 500
    assert runs.value("training_step", run_id="r") == 120
    assert runs.value("training_steps_target", run_id="r") == 1000
    assert runs.value("training_step_high_water", run_id="r") == 130
    assert runs.value("training_steps_completed_total", run_id="r") == 250
    assert runs.value("training_nonfinite_total", run_id="r") == 1
    assert runs.value("training_step_timestamp_seconds", run_id="r") == NOW - 3
    assert runs.value("training_step_change_timestamp_seconds", run_id="r") == NOW - 2
    assert runs.value("training_epoch", run_id="r") == 1.5
    assert runs.value("training_grad_norm", run_id="r") == 0.7


def test_of_states_and_phases_only_that_of_the_run_is_exported_and_always_whether_it_runs(runs: RunsTree) -> None:
    runs.metadata("ended", status="cancelled", phase="eval")
    samples = runs.samples()
    assert samples["training_run_state"] == {
        frozenset({("run_id", "ended"), ("state", "running")}): 0,
        frozenset({("run_id", "ended"), ("state", "cancelled")}): 1,
    }
    assert samples["training_phase"] == {frozenset({("run_id", "ended"), ("phase", "eval")}): 1}


def test_the_restart_policy_is_exported_only_of_a_run_that_asks_for_one(runs: RunsTree) -> None:
    runs.metadata("asks", policy="megatron_aggressive")
    runs.metadata("does-not")
    assert runs.labels("training_run_info", "asks")["policy"] == "megatron_aggressive"
    # To Prometheus an empty label is none.
    assert runs.labels("training_run_info", "does-not")["policy"] == ""


def test_what_a_record_does_not_hold_is_not_exported(runs: RunsTree) -> None:
    runs.metadata("r", attempt=None, phase_time=None)
    runs.progress("r", loss=None, step_time=None, moved_time=None, step=None)
    samples = runs.samples()
    for name in (
        "training_run_attempt",
        "training_phase_start_timestamp_seconds",
        "training_loss",
        "training_step",
        "training_step_timestamp_seconds",
        "training_step_change_timestamp_seconds",
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


def test_a_run_of_another_host_is_left_to_that_hosts_exporter_but_its_own_ranks_are_reported(runs: RunsTree) -> None:
    runs.metadata("r", host="node0")
    runs.progress("r")
    runs.rank("r", 0, host="node0")
    runs.rank("r", 1)
    samples = runs.samples()
    assert "training_run_state" not in samples
    assert "training_step" not in samples
    assert runs.value("training_rank_step", run_id="r", rank="1") == 120
    assert runs.value("training_rank_step", run_id="r", rank="0") is None


def test_whose_each_run_is_other_collectors_can_read_of_runs_of_other_hosts_too(runs: RunsTree) -> None:
    runs.metadata("r", host="node0")
    runs.metadata("s")
    runs.samples()
    assert runs.shared.owners == dict.fromkeys(("r", "s"), os.getuid())


def test_two_exporters_over_one_folder_export_no_series_twice(make_runs: Callable[..., RunsTree]) -> None:
    first, second = make_runs(), make_runs(host="node2")
    first.metadata("a")
    first.progress("a")
    first.metadata("b", host="node2")
    first.rank("a", 0)
    first.rank("a", 1, host="node2")
    own = {"trainwarden_runs", "trainwarden_runs_unreadable", "trainwarden_runs_left_out"}
    told = [
        {
            (name, labels)
            for name, found in tree.samples().items()
            if name not in own and not name.startswith("training_run_duration_seconds")
            for labels in found
        }
        for tree in (first, second)
    ]
    assert told[0]
    assert told[1]
    assert not told[0] & told[1]


def test_scope_all_reports_every_host(make_runs: Callable[..., RunsTree]) -> None:
    runs = make_runs(all_hosts=True, host="head")
    runs.metadata("r")
    runs.rank("r", 3, host="node9")
    assert runs.state("r") == "running"
    assert runs.value("training_rank_step", run_id="r", rank="3") == 120


def test_a_nodes_own_folder_with_nothing_but_ranks_is_no_run_that_never_started(runs: RunsTree) -> None:
    runs.rank("r", 4)
    assert runs.state("r") is None
    assert runs.value("training_rank_step", run_id="r", rank="4") == 120


# Cost


def test_a_file_that_did_not_change_is_not_read_again(runs: RunsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.metadata("r")
    runs.progress("r")
    runs.rank("r", 0)
    runs.now += 10
    assert runs.state("r") == "running"
    opened = opened_files(monkeypatch)
    assert runs.state("r") == "running"
    assert opened == []
    runs.progress("r", step=121)
    assert runs.value("training_step", run_id="r") == 121
    assert opened == ["progress.json"]


def _write_huge_file_of_another_host(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.write("r", "ranks/node1-0123abcd.json", {"host": HOST, "ranks": [_beat(0, HOST)]})
    other = {"host": "node2", "ranks": [_beat(1, "node2")], "pad": "x" * 2**18}
    runs.write("r", "ranks/node2-0123abcd.json", other)


def _beat(rank: int, host: str) -> dict[str, Any]:
    return {"rank": rank, "step": 120, "time": to_iso(NOW), "host": host, "attempt_key": "local:77-1:0"}


def test_a_huge_file_of_another_hosts_ranks_is_not_opened(
    make_runs: Callable[..., RunsTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make_runs(limits=RunLimits(rank_bytes=2**16))
    _write_huge_file_of_another_host(runs)
    opened = opened_files(monkeypatch)
    assert runs.value("training_rank_step", run_id="r", rank="0") == 120
    assert [name for name in opened if name.startswith("node")] == ["node1-0123abcd.json"]


def test_at_scope_all_the_files_of_all_hosts_are_read_and_count(make_runs: Callable[..., RunsTree]) -> None:
    runs = make_runs(all_hosts=True)
    _write_huge_file_of_another_host(runs)
    assert len(runs.samples()["training_rank_step"]) == 2
    runs = make_runs(all_hosts=True, limits=RunLimits(rank_bytes=2**16))
    assert "training_rank_step" not in runs.samples()


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


def test_names_that_begin_as_tokens_do_are_labels_as_they_are(make_runs: Callable[..., RunsTree]) -> None:
    runs = make_runs(host="sk-gpu-01")
    key = "ray:sk-llama-7b-20261126:0"
    names = {"attempt_key": key, "job_id": "sk-llama-7b-20261126", "host": "sk-gpu-01", "instance_id": "sk-gpu-01"}
    runs.metadata("r", world_size=3, **names)
    for rank, host in enumerate(("sk-gpu-01", "sk-gpu-02")):
        runs.rank("r", rank, host=host, attempt_key=key)
    shown = {name: [dict(labels) for labels in found] for name, found in runs.samples().items()}
    assert {key: shown["training_run_info"][0][key] for key in names} == names
    assert shown["training_attempt_info"][0]["node"] == "sk-gpu-01"
    assert [labels["host"] for labels in shown["training_rank_info"]] == ["sk-gpu-01"]
    assert [labels["host"] for labels in shown["training_host_heartbeat_timestamp_seconds"]] == ["sk-gpu-01"]
