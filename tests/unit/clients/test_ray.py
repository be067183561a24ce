"""What Ray's dashboard states, read from its answers of any shape."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.exporter.ray.dashboard import gpu_node, job, status
from trainwarden.clients.ray import OLDEST_VERSION, is_older, read_gpus, read_jobs
from trainwarden.clients.ray_usage import RayAmount, RayUsage, read_usage


@cases(
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


@cases(
    ("version", "expected"),
    [("2.51.1", True), ("2.9.0", True), ("2.52.0", False), ("2.60.0", False), ("3.0.0.dev0", False), ("", False)],
)
def test_versions_are_compared_by_their_numbers(version: str, expected: bool) -> None:
    assert is_older(version, OLDEST_VERSION) == expected


def test_the_oldest_version_is_the_one_that_the_tests_run_and_the_pages_name() -> None:
    oldest = ".".join(map(str, OLDEST_VERSION))
    root = Path(__file__).resolve().parents[3]
    texts = {
        "requirements/ray-oldest.txt": rf"^ray=={re.escape(oldest)}\.\d+ ",
        "docs/ray.md": rf"^{re.escape(oldest)}, the first that has tokens, or newer",
        "README.md": rf"`make test-ray-oldest`.* {re.escape(oldest)}, ",
    }
    for name, pattern in texts.items():
        assert re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE), name


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


@cases(
    ("gpus", "amount"),
    [
        (" 0.0/4.0 GPU\n", RayAmount(4, 0, 0)),
        (" 2.5/16.0 GPU\n 0.0/1.0 accelerator_type:GPU\n", RayAmount(16, 2.5, 0)),
        (" 1.0/8.0 GPU (1.0 used of 4.0 reserved in placement groups)\n", RayAmount(8, 1, 3)),
        (" 0.0/3.0 BIG_GPU\n", RayAmount(0, 0, 0)),
        ("", RayAmount(0, 0, 0)),
    ],
)
def test_gpus_are_read_from_what_ray_status_prints(gpus: str, amount: RayAmount) -> None:
    assert read_usage(status(gpus)).gpus == amount
    assert read_usage(status(gpus)).cpus == RayAmount(8, 1.5, 0)


def test_resources_in_another_notation_are_an_error_and_not_none_at_all() -> None:
    with pytest.raises(ValueError, match="written otherwise"):
        read_usage(status(" GPU: 3 of 4\n"))


@cases(
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


def test_gpus_of_dead_and_of_doubtful_nodes_are_not_shown() -> None:
    nodes: list[object] = [
        gpu_node("a", 0, 100, None, 101), gpu_node("a", 7), gpu_node("dead", 5, state="DEAD"), None, {},
        {**gpu_node("odd"), "gpus": [None, {"index": "0", "utilizationGpu": 1}, {"index": 1}]},
    ]  # fmt: skip
    found = read_gpus({"result": True, "data": {"summary": nodes}})
    assert {node.node: node.busy for node in found} == {"a": {"0": 0.0, "1": 1.0}, "odd": {}}


# What the formatters of each minor version of Ray print of one cluster, by both autoscalers; made by write.py there.
LAYOUTS = {file.stem: file for file in sorted((Path(__file__).parent / "ray_status").glob("*.txt"))}
_DEMANDS = re.compile(r"^(?:\w+ )?Demands:$", re.MULTILINE)


def status_text(layout: str) -> str:
    return LAYOUTS[layout].read_text(encoding="utf-8")


def until_demands(layout: str) -> str:
    """The text up to the heading of the demands."""
    text = status_text(layout)
    heading = _DEMANDS.search(text)
    assert heading
    return text[: heading.end()]


def usage_of(text: str) -> RayUsage:
    return read_usage({"result": True, "data": {"clusterStatus": text}})


def test_the_texts_are_there_by_both_autoscalers() -> None:
    assert len(LAYOUTS) >= 4
    assert {name.partition("-")[0] for name in LAYOUTS if name.endswith("-v1")} == {
        name.partition("-")[0] for name in LAYOUTS if name.endswith("-v2")
    }


@cases("layout", LAYOUTS)
def test_the_text_of_every_supported_minor_gives_the_same(layout: str) -> None:
    usage = usage_of(status_text(layout))
    assert usage.gpus == RayAmount(4, 2, 2)
    assert usage.cpus == RayAmount(4, 0, 2)
    assert usage.gpus_wanted == 16 + 3 + 20


@cases("layout", LAYOUTS)
def test_no_demands_are_zero_in_every_layout(layout: str) -> None:
    assert usage_of(f"{until_demands(layout)}\n (no resource demands)\n").gpus_wanted == 0


@cases("layout", LAYOUTS)
def test_a_text_that_was_cut_off_before_its_demands_is_an_error_and_never_zero(layout: str) -> None:
    with pytest.raises(ValueError, match="text of ray status"):
        usage_of(f"{until_demands(layout)}\n")


@cases("layout", LAYOUTS)
@cases(
    ("known", "unknown"),
    [
        ("Demands:", "Waiting Demands:"),
        ("Demands:", "Demands"),
        ("Usage:", "Use:"),
        ("pending tasks/actors", "waiting tasks"),
        ("3+ pending", "many pending"),
        ("2.0/4.0 GPU", "2.0 of 4.0 GPU"),
        ("Resources\n", "Resource overview\n"),
        ("Autoscaler status", "Status"),
    ],
)
def test_a_layout_that_is_not_known_is_an_error_and_never_zero(layout: str, known: str, unknown: str) -> None:
    text = status_text(layout)
    assert known in text
    with pytest.raises(ValueError, match="text of ray status"):
        usage_of(text.replace(known, unknown))
