"""`auto_restart` that takes up after one whose process has died. With a real head: tests/compat."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.fake_ray import FakeRay
from trainwarden.ray import auto_restart, monitor, restart
from trainwarden.ray.head import RayHead
from trainwarden.ray.restart import RestartResult


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A cluster on which each new job fails at once."""
    found = FakeRay()
    found.on_start = lambda job: found.end(job, "FAILED")
    for module in (restart, monitor):
        monkeypatch.setattr(module, "open_head", lambda *_: RayHead("head", found, None))
        monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(monitor, "read_log", lambda *_: "step: 3 loss: 1.0\n")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> str:
    checkpoint = tmp_path / "step_3"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    return str(tmp_path)


def follow(folder: str, **arguments: Any) -> RestartResult:
    return auto_restart("head", "grpo", folder, check_interval=0, retry_delay=0, **arguments)


def test_restarts_of_an_earlier_call_count_and_its_newest_job_is_followed(ray: FakeRay, folder: str) -> None:
    ray.add("first", "", "FAILED", metadata={"job_name": "grpo"}, job_id="01", end_time=1)
    before = follow(folder, max_retries=2)
    assert (before["total_retries"], len(ray.jobs)) == (2, 3)
    for again in (follow(folder, max_retries=3, initial_job_id="first"), follow(folder, max_retries=4)):
        assert again["reason"] == "max_retries_reached after FAILED"
    assert (again["total_retries"], len(ray.jobs)) == (4, 5), "one more each time"
    assert [job["metadata"].get("trainwarden_retries") for job in ray.jobs.values()] == [None, "1", "2", "3", "4"]


def test_a_job_that_an_earlier_call_has_submitted_gets_no_second_one_beside_it(
    ray: FakeRay, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.on_start = lambda _job: None
    ray.add("first", "", metadata={"job_name": "grpo"}, job_id="01")

    def ends(_head: object, job_id: str) -> str:
        ray.end(job_id, "SUCCEEDED")
        return ""

    monkeypatch.setattr(monitor, "read_log", ends)
    result = follow(folder, job_config={"entrypoint": "python train.py"})
    assert (result["success"], result["job_id"], list(ray.jobs)) == (True, "first", ["first"])
    again = follow(folder, job_config={"entrypoint": "python train.py"})["job_id"]
    assert again != "first", "that one is over"
    assert ray.jobs[again]["metadata"] == {"job_name": "grpo", "trainwarden_resume_checkpoint": f"{folder}/step_3"}


CODE = {"working_dir": "gcs://code.zip"}


def test_a_package_that_ray_would_delete_is_kept_until_the_next_job_starts(
    ray: FakeRay, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray deletes, ten minutes after it was last looked for, a package that no job under way needs."""
    ray.add("first", "", "FAILED", metadata={"job_name": "grpo"}, job_id="01", end_time=1, runtime_env=CODE)
    ray.packages["code.zip"] = b"code"
    now, looked = [0.0], [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] - looked[0] > 600:
            ray.packages.clear()

    def look(_name: str) -> None:
        looked[0] = now[0]

    ray.on_package = look
    monkeypatch.setattr(time, "sleep", sleep)
    result = auto_restart("head", "grpo", folder, check_interval=0, retry_delay=1500, max_retries=1)
    assert (result["total_retries"], now[0] >= 1500) == (1, True)
    assert ray.jobs[result["job_id"]]["runtime_env"]["working_dir"] == "gcs://code.zip"


def test_a_package_that_is_gone_ends_it_before_a_job_that_cannot_start(ray: FakeRay, folder: str) -> None:
    ray.add("first", "", "FAILED", metadata={"job_name": "grpo"}, job_id="01", end_time=1, runtime_env=CODE)
    result = follow(folder)
    assert (result["success"], list(ray.jobs)) == (False, ["first"])
    assert result["reason"].startswith("restart_failed: Ray has deleted package gcs://code.zip; give job_config")


def test_following_a_job_keeps_its_packages(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    ray.add("first", "", runtime_env=CODE)
    now, looked = [0.0], list[float]()
    ray.on_package = lambda _name: looked.append(now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 700:
            ray.end("first", "SUCCEEDED")

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monitor.monitor_job("head", "first", check_interval=3600)
    assert looked == [0, 240, 480]
