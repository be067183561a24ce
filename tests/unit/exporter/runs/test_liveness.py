"""When a run last lived and moved, and which ranks of it are silent: one series each, as the rules need them."""

from __future__ import annotations

from tests.cases import cases
from tests.unit.exporter.runs_tree import HOST, NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden_exporter.collectors.runs.liveness import rank_ranges


def labelled(runs: RunsTree, metric: str) -> dict[frozenset[tuple[str, str]], float]:
    return runs.samples().get(metric, {})


def only(runs: RunsTree, metric: str) -> tuple[dict[str, str], float]:
    ((labels, value),) = labelled(runs, metric).items()
    return dict(labels), value


def test_the_newest_heartbeat_of_any_kind_is_the_last_sign_of_life(runs: RunsTree) -> None:
    runs.metadata("r", last_update=to_iso(NOW - 50))
    runs.progress("r", last_updated=to_iso(NOW - 60))
    runs.rank("r", 0, time=to_iso(NOW - 40))
    assert only(runs, "training_life_timestamp_seconds") == ({"run_id": "r"}, NOW - 40)


def test_a_heartbeat_from_before_the_attempt_counts_as_its_start(runs: RunsTree) -> None:
    runs.metadata("r", last_update=to_iso(NOW - 500), attempt_start_time=to_iso(NOW - 100))
    assert only(runs, "training_life_timestamp_seconds")[1] == NOW - 100


def test_a_run_without_a_heartbeat_has_no_sign_of_life(runs: RunsTree) -> None:
    runs.metadata("r", last_update=None)
    assert not labelled(runs, "training_life_timestamp_seconds")


@cases(
    ("metadata", "progress", "basis", "ago"),
    [
        ({}, {}, "step", 2),
        ({"phase": "eval"}, {}, "phase", 2),
        ({"phase": "init"}, None, "phase", 500),
        ({}, None, "none", 500),
        ({"phase_source": "output"}, {}, "output", 2),
        ({"attempt_start_time": to_iso(NOW - 1)}, {}, "step", 1),
    ],
    runs=RunsTree,
)
def test_the_motion_of_a_run_names_what_it_is_judged_by(
    runs: RunsTree, metadata: dict[str, str], progress: dict[str, str] | None, basis: str, ago: int
) -> None:
    runs.metadata("r", **metadata)
    if progress is not None:
        runs.progress("r", **progress)
    expected = {"run_id": "r", "phase": metadata.get("phase", "train"), "basis": basis}
    assert only(runs, "training_motion_timestamp_seconds") == (expected, NOW - ago)


def test_a_loop_that_was_set_back_moves_and_does_not_advance(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.progress("r", step_time=to_iso(NOW - 400), moved_time=to_iso(NOW - 2))
    assert only(runs, "training_motion_timestamp_seconds")[1] == NOW - 2
    assert only(runs, "training_advance_timestamp_seconds")[1] == NOW - 400


def test_a_record_with_neither_steps_nor_phases_is_not_judged(runs: RunsTree) -> None:
    runs.metadata("r", phase_time=None)
    assert not labelled(runs, "training_motion_timestamp_seconds")


def test_the_budget_is_that_of_the_phase_and_a_phase_may_have_none(runs: RunsTree) -> None:
    runs.metadata("r", phase="init", thresholds={"stall_seconds": {"init": 900, "train": 300}})
    assert only(runs, "training_stall_budget_seconds")[1] == 900
    runs.metadata("r", phase="idle")
    assert not labelled(runs, "training_stall_budget_seconds")


def test_the_ranks_of_a_host_are_one_series_with_their_newest_heartbeat(runs: RunsTree) -> None:
    runs.metadata("r")
    for rank, ago in ((0, 3), (1, 2), (3, 4)):
        runs.rank("r", rank, time=to_iso(NOW - ago))
    runs.rank("r", 8, host="node2")
    expected = {"run_id": "r", "host": HOST, "ranks": "0-1,3"}
    assert only(runs, "training_host_heartbeat_timestamp_seconds") == (expected, NOW - 2)


def test_silent_ranks_are_named_with_the_oldest_heartbeat(runs: RunsTree) -> None:
    runs.metadata("r", thresholds={"stale_seconds": 60})
    for rank, ago in ((0, 1), (1, 90), (2, 61), (3, 60)):
        runs.rank("r", rank, time=to_iso(NOW - ago))
    expected = {"run_id": "r", "host": HOST, "ranks": "1-2"}
    assert only(runs, "training_silent_ranks_timestamp_seconds") == (expected, NOW - 90)


def test_ranks_fall_silent_without_a_change_of_the_record(runs: RunsTree) -> None:
    runs.metadata("r", thresholds={"stale_seconds": 60})
    runs.rank("r", 1)
    assert not labelled(runs, "training_silent_ranks_timestamp_seconds")
    runs.now += 61
    assert only(runs, "training_silent_ranks_timestamp_seconds")[1] == NOW


def test_a_rank_that_has_ended_is_not_silent(runs: RunsTree) -> None:
    runs.metadata("r", thresholds={"stale_seconds": 60})
    runs.rank("r", 1, time=to_iso(NOW - 90), status="succeeded")
    assert not labelled(runs, "training_silent_ranks_timestamp_seconds")


def test_no_rank_of_a_run_that_has_ended_is_silent(runs: RunsTree) -> None:
    runs.metadata("r", status="cancelled", end_time=to_iso(NOW - 80), thresholds={"stale_seconds": 60})
    runs.rank("r", 1, time=to_iso(NOW - 90))
    assert not labelled(runs, "training_silent_ranks_timestamp_seconds")


def test_a_node_without_rank_0_names_its_own_silent_ranks(runs: RunsTree) -> None:
    runs.rank("r", 8, time=to_iso(NOW - 700))
    runs.rank("r", 9)
    assert only(runs, "training_silent_ranks_timestamp_seconds")[0]["ranks"] == "8"
    assert only(runs, "training_host_heartbeat_timestamp_seconds")[0]["ranks"] == "8-9"


def test_ranks_that_have_written_nothing_yet_are_named(runs: RunsTree) -> None:
    runs.metadata("r", world_size=8)
    for rank in (0, 1, 2, 5):
        runs.rank("r", rank)
    expected = {"run_id": "r", "ranks": "3-4,6-7", "world_size": "8"}
    assert only(runs, "training_missing_ranks") == (expected, 4)
    for rank in (3, 4, 6, 7):
        runs.rank("r", rank)
    assert not labelled(runs, "training_missing_ranks")


@cases(("world_size", "status"), [(None, "running"), (0, "running"), (10**12, "running"), (8, "failed")], runs=RunsTree)
def test_no_rank_is_missing_where_it_is_unknown_which_there_are(
    runs: RunsTree, world_size: int | None, status: str
) -> None:
    runs.metadata("r", world_size=world_size, status=status)
    runs.rank("r", 0)
    assert not labelled(runs, "training_missing_ranks")


def test_no_rank_is_missing_where_ranks_write_nothing(runs: RunsTree) -> None:
    runs.metadata("r", world_size=8)
    assert not labelled(runs, "training_missing_ranks")


@cases(("ranks", "text"), [([], ""), ([3], "3"), ([2, 1, 0], "0-2"), ([0, 2, 3, 7], "0,2-3,7"), ([0, 1], "0-1")])
def test_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    assert rank_ranges(ranks) == text


def test_a_run_without_a_log_shows_its_step_instead_of_a_last_line(runs: RunsTree) -> None:
    runs.metadata("r", status="failed", end_time=to_iso(NOW - 5))
    runs.progress("r", step=1500, total_steps=5000, loss=2.1337)
    assert only(runs, "training_failure_message_info")[0]["last_line"] == "step 1500/5000, loss 2.134"


def test_a_run_that_trains_shows_no_last_line(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.progress("r")
    assert not labelled(runs, "training_failure_message_info")


def test_the_budget_may_be_a_multiple_of_the_runs_own_steps_unless_they_are_inferred(runs: RunsTree) -> None:
    thresholds = {"stall_seconds": {"train": 300}, "stall_factor": 3}
    runs.metadata("r", thresholds=thresholds)
    runs.progress("r", step_durations={"count": 200, "p50": 8, "p99": 20, "max": 40})
    assert only(runs, "training_stall_budget_seconds")[1] == 60
    runs.metadata("r", thresholds=thresholds, phase_source="output")
    assert only(runs, "training_stall_budget_seconds")[1] == 300
