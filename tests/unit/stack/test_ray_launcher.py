"""A command as a job of Ray, followed over its submissions. With a real one: tests/e2e/test_demo.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.remediator.fake_ray import END, FakeRay
from tests.waiting import wait_until
from trainwarden.clients.ray_jobs import RayJobs, RayReserved
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import choose
from trainwarden.stack import launcher
from trainwarden.stack.launcher import Job
from trainwarden.stack.ray_launcher import RayCluster, RayLauncher
from trainwarden.stack.run_recorder import RunRecorder
from trainwarden.stack.scheduled_launcher import ScheduledCommand
from trainwarden.stack.service import ServiceFailed
from trainwarden_remediator.drivers.ray_templates import RayTemplates


@contextmanager
def launched(ray: FakeRay, folder: Path) -> Iterator[tuple[RayLauncher, list[Job]]]:
    """A launcher that follows its job, and the changes that it reported."""
    record, seen = folder / "run-1", list[Job]()
    what = ScheduledCommand(
        ["sh", "-c", "echo 'two words'"],
        "run-1",
        folder=folder,
        environment={"TRAINWARDEN_RUN_ID": "run-1", "PASSWORD": "s3cr3t"},
        log=record / "logs" / "training_log_latest.txt",
        recorder=RunRecorder(record, choose(None, {})),
        notify=seen.append,
    )
    made = RayLauncher(what, RayJobs(ray), RayReserved(num_gpus=2))
    made.submit()
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made, seen
    finally:
        made.close()
        thread.join()


def test_the_command_is_submitted_as_it_is_with_nothing_but_what_concerns_trainwarden(tmp_path: Path) -> None:
    ray = FakeRay()
    with launched(ray, tmp_path) as (made, seen):
        job = ray.jobs[made.root]
        assert job["metadata"] == {"trainwarden_run_id": "run-1"}
        assert job["runtime_env"] == {"env_vars": {"PYTHONUNBUFFERED": "1", "TRAINWARDEN_RUN_ID": "run-1"}}
        assert f"cd {tmp_path} && exec " in job["entrypoint"]
        assert """sh -c 'echo '"'"'two words'"'"'' >> """ in job["entrypoint"]
        assert seen[0].attempt_key == f"ray:{made.root}:0"
        assert ray.reserved[made.root] == {"GPU": 2}
        ray.end(made.root, "SUCCEEDED")
        wait_until(lambda: made.job.over)
    assert (made.job.state, made.job.exit_code, made.job.ended) == (launcher.COMPLETED, 0, END / 1000)
    assert ray.made == [("POST", "/api/jobs/")], "what is over is not stopped"


def test_a_job_that_the_remediator_stops_is_followed_as_the_next_submission(tmp_path: Path) -> None:
    ray = FakeRay()
    with launched(ray, tmp_path) as (made, seen):
        first = made.job
        RecordStore(tmp_path / "run-1").announce_restart(first.attempt_key, "it hangs", "i", None)
        wait_until(lambda: made.job.state == launcher.STOPPING)
        ray.end(made.root)
        wait_until(lambda: made.job.over)
        assert made.job.state == launcher.FAILED, "more is to come"
        again = f"{made.root}-a1-01234567"
        ray.add(again, "run-1", start_time=2_000_000)
        wait_until(lambda: made.job.job_id == again)
        assert (made.job.generation, made.job.state) == (1, launcher.RUNNING)
    assert ("POST", f"/api/jobs/{again}/stop") in ray.made, "it ends with trainwarden up"
    assert made.job.state == launcher.CANCELLED
    states = [(job.generation, job.state) for job in seen]
    assert states == [(0, "running"), (0, "stopping"), (0, "failed"), (1, "running"), (1, "cancelled")]


def test_a_job_that_its_user_stops_is_cancelled(tmp_path: Path) -> None:
    ray = FakeRay()
    with launched(ray, tmp_path) as (made, _seen):
        ray.end(made.root)
        wait_until(lambda: made.job.over)
    assert made.job.state == launcher.CANCELLED


def test_what_is_reserved_is_noted_for_the_remediator(tmp_path: Path) -> None:
    nothing = RayCluster("http://127.0.0.1:8265")
    assert nothing.flags("run-1", tmp_path) == ["--driver=ray", "--ray-address=http://127.0.0.1:8265"]
    reserved = RayReserved(num_cpus=4, num_gpus=0.5)
    flags = RayCluster("http://127.0.0.1:8265", None, reserved).flags("run-1", tmp_path)
    assert flags[-1] == f"--ray-template-dir={tmp_path}/ray-templates"
    template = RayTemplates(tmp_path / "ray-templates").of("run-1")
    assert template is not None
    assert template.reserved == reserved


def test_a_cluster_that_does_not_take_the_job_is_named(tmp_path: Path) -> None:
    ray = FakeRay()
    ray.lost_requests = 1
    with pytest.raises(ServiceFailed, match=r"Ray: POST /api/jobs/ .*: timeout"), launched(ray, tmp_path):
        pass
