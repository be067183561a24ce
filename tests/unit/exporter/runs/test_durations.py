"""How long attempts took."""

from __future__ import annotations

from collections.abc import Callable

from tests.cases import cases
from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso


def counted(tree: RunsTree, state: str, bound: str = "+Inf") -> float | None:
    return tree.value("training_run_duration_seconds_bucket", state=state, le=bound)


def end(tree: RunsTree, run_id: str, at: float, status: str = "succeeded", **keys: str) -> None:
    tree.metadata(run_id, status=status, end_time=to_iso(at), last_update=to_iso(at), **keys)


def test_an_attempt_that_ends_is_counted_once_by_its_state(runs: RunsTree) -> None:
    runs.metadata("r")
    assert counted(runs, "succeeded") == 0
    end(runs, "r", NOW + 600)
    runs.now = NOW + 601
    for _ in range(3):
        assert counted(runs, "succeeded") == 1
    assert counted(runs, "succeeded", "900.0") == 0
    assert counted(runs, "succeeded", "3600.0") == 1
    assert runs.value("training_run_duration_seconds_sum", state="succeeded") == 1200
    assert counted(runs, "failed") == 0


def test_each_attempt_of_a_run_is_counted(runs: RunsTree) -> None:
    for attempt in range(2):
        key, start = f"slurm:7:{attempt}", to_iso(NOW + 100 * attempt)
        runs.metadata("r", attempt=attempt, attempt_key=key, attempt_start_time=start)
        runs.text()
        end(runs, "r", NOW + 100 * attempt + 50, "failed", attempt_key=key, attempt_start_time=start)
        runs.text()
    assert counted(runs, "failed") == 2


def test_what_ended_before_the_exporter_began_was_counted_by_the_one_before_it(
    make_runs: Callable[..., RunsTree],
) -> None:
    first = make_runs()
    first.metadata("r")
    first.text()
    end(first, "r", NOW - 5)
    assert counted(first, "succeeded") == 1
    second = make_runs()
    assert counted(second, "succeeded") == 0


def test_a_run_of_another_host_is_counted_there(runs: RunsTree) -> None:
    end(runs, "r", NOW + 5, host="node2")
    runs.rank("r", 1)
    assert counted(runs, "succeeded") == 0


@cases(("start", "ended"), [(-62_000_000_000.0, NOW + 5), (NOW, NOW + 400 * 86_400), (-5.0, NOW + 5)], runs=RunsTree)
def test_a_duration_that_no_attempt_can_have_had_is_not_counted(runs: RunsTree, start: float, ended: float) -> None:
    runs.metadata("odd", attempt_start_time=to_iso(start), start_time=to_iso(start))
    runs.text()
    end(runs, "odd", ended, attempt_start_time=to_iso(start), start_time=to_iso(start))
    assert counted(runs, "succeeded") == 0
    assert runs.value("training_run_duration_seconds_sum", state="succeeded") == 0
