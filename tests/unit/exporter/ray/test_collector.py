"""The series that are made of a dashboard's answers."""

from __future__ import annotations

from typing import Any

from tests.cases import cases
from tests.unit.exporter.ray.dashboard import actors, good, gpu_node, job, status
from trainwarden.clients.http import PathAnswer
from trainwarden.clients.ray import read_jobs
from trainwarden_exporter.collectors.ray.collector import PATHS, RayCollector, expected_runs, shown_jobs
from trainwarden_exporter.core.exposition import encode_text

DAY = 24 * 3600.0


class Canned:
    """A dashboard that answers what it is told."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers

    def call(self, paths: Any) -> str:
        return ""

    def get(self, paths: Any) -> list[PathAnswer]:
        import json

        return [PathAnswer(200, json.dumps(self.answers[path.partition("?")[0]]).encode(), "") for path in paths]


def page(answers: dict[str, object], *, limit: int = 10, node_gpus: bool = True) -> list[str]:
    collector = RayCollector(
        Canned(answers), limit=limit, node_gpus=node_gpus, expect=lambda _: None, now=lambda: 1500.0
    )
    return encode_text(collector.collect()).decode().splitlines()


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
    assert [each.submission_id for each in shown_jobs(read, now, 10)[0]] == ["long", "new", "newer"]
    some, dropped = shown_jobs(read, now, 1)
    assert ([each.submission_id for each in some], dropped) == (["long"], 2)
    assert "ray_cluster_jobs_dropped 1.0" in page(good([job("a", "RUNNING"), job("b", "RUNNING")]), limit=1)


def test_a_run_is_expected_since_the_latest_of_its_jobs_that_are_under_way() -> None:
    def named(state: str, seconds: int) -> dict[str, Any]:
        return job(f"{state}{seconds}", state, start_time=seconds * 1000, metadata={"trainwarden_run_id": "r"})

    assert expected_runs(read_jobs([named("PENDING", 70), named("RUNNING", 50), named("FAILED", 90)])) == {"r": 70.0}
    assert expected_runs(read_jobs([named("STOPPED", 90)])) == {}


@cases(
    ("jobs", "gpus", "count"),
    [
        ([job("a", "RUNNING"), job("b", "RUNNING"), job("c", "PENDING")], " 0.0/4.0 GPU\n", 2),
        ([job("a", "RUNNING")], " 0.0/4.0 GPU (0.0 used of 4.0 reserved in placement groups)\n", 1),
        ([job("a", "RUNNING")], "", 0),
        ([job("a", "SUCCEEDED")], " 0.0/4.0 GPU\n", 0),
    ],
)
def test_jobs_run_without_gpu_where_there_are_some_and_none_is_held(
    jobs: list[dict[str, Any]], gpus: str, count: int
) -> None:
    assert f"ray_cluster_running_jobs_without_gpu {count}.0" in page({**good(jobs), PATH_USAGE: status(gpus)})


PATH_USAGE = PATHS["usage"].partition("?")[0]
TWO = [job("a", "RUNNING", job_id="01000000"), job("b", "RUNNING", job_id="02000000")]


def held(answers: dict[str, object]) -> dict[str, str]:
    """The GPUs of each job, and how many jobs have none, as on the page."""
    lines = [line for line in page(answers) if "ray_cluster_job_gpus{" in line or "jobs_without_gpu " in line]
    return {line.partition('"')[2].partition('"')[0]: line.rpartition(" ")[2] for line in lines}


def test_a_job_without_gpu_is_seen_beside_one_that_holds_some() -> None:
    answers = {**good(TWO), PATH_USAGE: status(" 3.5/4.0 GPU\n"), "/api/v0/actors": actors(("02000000", 3.5))}
    assert held(answers) == {"a": "0.0", "b": "3.5", "": "1.0"}


def test_the_entrypoint_of_a_job_holds_gpus_too() -> None:
    supervisor = actors(("09000000", 2), name="_ray_internal_job_actor_a", class_name="JobSupervisor")
    answers = {**good(TWO), PATH_USAGE: status(" 2.0/4.0 GPU\n"), "/api/v0/actors": supervisor}
    assert held(answers) == {"a": "2.0", "b": "0.0", "": "1.0"}


def test_tasks_are_read_where_actors_do_not_hold_all_gpus() -> None:
    answers = {**good(TWO), PATH_USAGE: status(" 4.0/4.0 GPU\n"), "/api/v0/actors": actors(("01000000", 1))}
    assert held(answers) == {"a": "1.0"}, "who holds three is unknown"
    answers["/api/v0/tasks"] = actors(("02000000", 3), type="NORMAL_TASK")
    assert held(answers) == {"a": "1.0", "b": "3.0", "": "0.0"}
    answers["/api/v0/tasks"] = actors(("02000000", 3), type="ACTOR_CREATION_TASK")
    assert held(answers) == {"a": "1.0"}, "an actor is no task as well"


@cases(
    "bad", [{"result": False}, actors(("01000000", 4), total=20_000), actors(("01000000", 4), required_resources=None)]
)
def test_a_job_whose_gpus_are_unknown_is_not_reported_to_have_none(bad: object) -> None:
    """Of a list that is cut off or cannot be read, zero is unknown."""
    answers = {**good(TWO), PATH_USAGE: status(" 4.0/4.0 GPU\n"), "/api/v0/actors": bad}
    found = held(answers)
    assert "b" not in found
    assert "" not in found


def test_what_is_no_longer_written_is_dropped_until_it_is_written_again() -> None:
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
