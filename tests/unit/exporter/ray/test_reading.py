"""What is read from the dashboard's answers, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.exporter.ray.dashboard import good, gpu_node, job, status
from trainwarden_exporter.collectors.ray.collector import PATHS, RayCollector
from trainwarden_exporter.collectors.ray.jobs import expected_runs, read_jobs, shown
from trainwarden_exporter.collectors.ray.reach import Answer
from trainwarden_exporter.collectors.ray.resources import Amount, read_gpus, read_usage
from trainwarden_exporter.core.exposition import encode_text

DAY = 24 * 3600.0


class Canned:
    """A dashboard that answers what it is told."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers

    def get(self, paths: Any) -> list[Answer]:
        import json

        return [Answer(200, json.dumps(self.answers[path.partition("?")[0]]).encode(), "") for path in paths]


def page(answers: dict[str, object], *, limit: int = 10, node_gpus: bool = True) -> list[str]:
    collector = RayCollector(
        Canned(answers), limit=limit, node_gpus=node_gpus, expect=lambda _: None, now=lambda: 1500.0
    )
    return encode_text(collector.collect()).decode().splitlines()


@pytest.mark.parametrize(
    ("fields", "run_id"),
    [
        ({"metadata": {"trainwarden_run_id": "a-1"}}, "a-1"),
        ({"runtime_env": {"env_vars": {"TRAINWARDEN_RUN_ID": "b-1"}}}, "b-1"),
        ({"metadata": {"trainwarden_run_id": "a"}, "runtime_env": {"env_vars": {"TRAINWARDEN_RUN_ID": "b"}}}, "a"),
        ({"metadata": {"trainwarden_run_id": "a/../b"}}, ""),
        ({"metadata": {"trainwarden_run_id": 7}, "runtime_env": "none"}, ""),
        ({"runtime_env": {"env_vars": {"TRAINWARDEN_RUN_ID": "***"}}}, ""),
        ({"metadata": ["trainwarden_run_id"]}, ""),
    ],
)
def test_a_run_id_is_the_metadatas_else_the_environments_and_valid(fields: dict[str, Any], run_id: str) -> None:
    assert read_jobs([job("j", "RUNNING", **fields)])[0].run_id == run_id


def test_jobs_of_any_shape_are_read_each_once() -> None:
    odd = [
        {}, None, 3, job("x", "RUNNING"), job("x", "FAILED"), job(None, "RUNNING", job_id="01000000"),
        {"submission_id": "y"}, job("z", "PAUSED", start_time="soon", end_time=-1, driver_exit_code="no"),
        job("w", "FAILED", error_type="BRAND_NEW"),
    ]  # fmt: skip
    found = {each.submission_id: each for each in read_jobs(odd)}
    assert found.keys() == {"x", "01000000", "y", "z", "w"}
    assert found["x"].state == "running"
    assert found["z"].state == ""
    assert (found["z"].start, found["z"].end, found["z"].exit_code) == (None, None, None)
    assert found["w"].error_type == "other"


def test_a_job_in_a_state_that_is_not_known_is_shown_in_none() -> None:
    lines = page(good([job("z", "PAUSED")]))
    assert any(line.startswith('ray_cluster_job_info{submission_id="z"') for line in lines)
    assert not any(line.startswith("ray_cluster_job_state") for line in lines)


def test_ids_cannot_break_the_page() -> None:
    lines = page(good([job('a"} 1\n\x1b[31mevil{', "RUNNING"), job("b" * 5000, "RUNNING")]))
    shown_ids = [line for line in lines if line.startswith("ray_cluster_job_info")]
    assert len(shown_ids) == 2
    assert any('submission_id="a\\"} 1 evil{"' in line for line in shown_ids)
    assert all(len(line) < 300 for line in shown_ids)


def test_jobs_under_way_are_shown_first_and_those_that_ended_a_day_ago_not_at_all() -> None:
    now = 10 * DAY
    ago = {"new": 60, "newer": 30, "old": DAY + 60}
    jobs = [job(name, "FAILED", start_time=1000, end_time=int((now - age) * 1000)) for name, age in ago.items()]
    jobs += [job("long", "RUNNING", start_time=1000), job("new-end", "SUCCEEDED", start_time=2000, end_time=None)]
    read = read_jobs(jobs)
    assert [each.submission_id for each in shown(read, now, 10)[0]] == ["long", "new", "newer"]
    some, dropped = shown(read, now, 1)
    assert ([each.submission_id for each in some], dropped) == (["long"], 2)
    assert "ray_cluster_jobs_dropped 1.0" in page(good([job("a", "RUNNING"), job("b", "RUNNING")]), limit=1)


def test_a_run_is_expected_since_the_latest_of_its_jobs_that_are_under_way() -> None:
    def named(state: str, seconds: int) -> dict[str, Any]:
        return job(f"{state}{seconds}", state, start_time=seconds * 1000, metadata={"trainwarden_run_id": "r"})

    assert expected_runs(read_jobs([named("PENDING", 70), named("RUNNING", 50), named("FAILED", 90)])) == {"r": 70.0}
    assert expected_runs(read_jobs([named("STOPPED", 90)])) == {}


@pytest.mark.parametrize(
    ("gpus", "amount"),
    [
        (" 0.0/4.0 GPU\n", Amount(4, 0, 0)),
        (" 2.5/16.0 GPU\n 0.0/1.0 accelerator_type:GPU\n", Amount(16, 2.5, 0)),
        (" 1.0/8.0 GPU (1.0 used of 4.0 reserved in placement groups)\n", Amount(8, 1, 3)),
        (" 0.0/3.0 BIG_GPU\n", Amount(0, 0, 0)),
        ("", Amount(0, 0, 0)),
    ],
)
def test_gpus_are_read_from_what_ray_status_prints(gpus: str, amount: Amount) -> None:
    assert read_usage(status(gpus)).gpus == amount
    assert read_usage(status(gpus)).cpus == Amount(8, 1.5, 0)


def test_resources_in_another_notation_are_an_error_and_not_none_at_all() -> None:
    with pytest.raises(ValueError, match="written otherwise"):
        read_usage(status(" GPU: 3 of 4\n"))


@pytest.mark.parametrize(
    ("demands", "wanted"),
    [
        (" (no resource demands)", 0),
        (" {'GPU': 9.0}: 1+ pending tasks/actors", 9),
        (" {'CPU': 1.0}: 5+ pending tasks/actors\n {'CPU': 1.0, 'GPU': 0.5}: 4+ pending tasks/actors", 2),
        (" {'GPU': 3.0} * 1, {'CPU': 1.0, 'GPU': 2.0} * 4 (SPREAD): 2+ pending placement groups", 22),
    ],
)
def test_demands_are_summed_over_tasks_actors_and_bundles(demands: str, wanted: float) -> None:
    assert read_usage(status(demands=demands)).gpus_wanted == wanted


@pytest.mark.parametrize(
    ("jobs", "gpus", "count"),
    [
        ([job("a", "RUNNING"), job("b", "RUNNING"), job("c", "PENDING")], " 0.0/4.0 GPU\n", 2),
        ([job("a", "RUNNING")], " 0.0/4.0 GPU (0.0 used of 4.0 reserved in placement groups)\n", 1),
        ([job("a", "RUNNING")], " 0.5/4.0 GPU\n", 0),
        ([job("a", "RUNNING")], "", 0),
        ([job("a", "SUCCEEDED")], " 0.0/4.0 GPU\n", 0),
    ],
)
def test_jobs_run_without_gpu_where_there_are_some_and_nobody_holds_any(
    jobs: list[dict[str, Any]], gpus: str, count: int
) -> None:
    assert f"ray_cluster_running_jobs_without_gpu {count}.0" in page({**good(jobs), PATH_USAGE: status(gpus)})


PATH_USAGE = PATHS["usage"].partition("?")[0]


def test_gpus_of_dead_and_of_doubtful_nodes_are_not_shown() -> None:
    nodes: list[object] = [
        gpu_node("a", 0, 100, None, 101), gpu_node("a", 7), gpu_node("dead", 5, state="DEAD"), None, {},
        {**gpu_node("odd"), "gpus": [None, {"index": "0", "utilizationGpu": 1}, {"index": 1}]},
    ]  # fmt: skip
    found = read_gpus({"result": True, "data": {"summary": nodes}})
    assert {node.node: node.busy for node in found} == {"a": {"0": 0.0, "1": 1.0}, "odd": {}}


def test_what_nobody_writes_any_longer_is_dropped_until_it_is_written_again() -> None:
    clock = [0.0]
    answers = good([job("a", "RUNNING")])
    collector = RayCollector(
        Canned(answers), limit=9, node_gpus=True, expect=lambda _: None, now=lambda: 1500.0, monotonic=lambda: clock[0]
    )

    def names() -> set[str]:
        return {family.metric.name for family in collector.collect()}

    old = {"ray_cluster_gpus", "ray_cluster_running_jobs_without_gpu", "ray_cluster_node_gpu_utilization_ratio"}
    assert old <= names()
    clock[0] = 59.0
    assert old <= names()
    clock[0] = 61.0
    assert not old & names()
    answers[PATH_USAGE] = status(second=5)
    answers["/nodes"] = {"result": True, "data": {"summary": [gpu_node("a", 50, now=9.0)]}}
    assert old <= names()


def test_the_large_answer_is_not_asked_for_where_it_is_not_wanted() -> None:
    answers = good([])
    del answers["/nodes"]
    assert not any("utilization" in line for line in page(answers, node_gpus=False))
