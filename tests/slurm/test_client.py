"""The client and the driver on the commands of a real SLURM."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden.clients.slurm.client import SlurmClient, UnreadableRecord, find_commands
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden_remediator.drivers.driver import Absent, CallOutcome, JobState, RestartTarget, ScheduledJob
from trainwarden_remediator.drivers.slurm import SlurmDriver, slurm_client

pytestmark = pytest.mark.slurm


@pytest.fixture
def client(cluster: Cluster) -> SlurmClient:
    return SlurmClient(find_commands(cluster.bin, ("squeue", "scontrol", "sinfo")), 60.0)


@pytest.fixture
def driver(cluster: Cluster) -> SlurmDriver:
    return SlurmDriver(slurm_client(cluster.bin, 60.0), {os.getuid()}, 15.0)


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\nexec sleep 600\n", encoding="utf-8")
    return lambda *options: str(cluster.submit(script, options=["--comment=mine, trainwarden:run-1", *options]))


def _reading(driver: SlurmDriver, job_id: str, *states: JobState) -> ScheduledJob:
    def probe() -> ScheduledJob | None:
        driver.refresh()
        reading = driver.job(job_id)
        assert isinstance(reading, ScheduledJob)
        return reading if reading.state in states else None

    return wait_until(probe, f"job {job_id} is {states}")


def test_nodes_and_jobs_are_read_one_by_one(client: SlurmClient, submit: Callable[..., str], cluster: Cluster) -> None:
    job_id = submit("--hold", '--job-name=a\tb "c" ]}')
    nodes, jobs = list(client.nodes()), list(client.jobs())
    assert sorted(node.name for node in nodes if isinstance(node, SlurmNode)) == ["n1", "n2", "n3"]
    assert not any(isinstance(record, UnreadableRecord) for record in [*nodes, *jobs])
    (job,) = (job for job in jobs if isinstance(job, SlurmJob) and job.job_id == job_id)
    assert (job.name, job.run_id, job.state, job.held) == ('a\tb "c" ]}', "run-1", "pending", True)
    assert job.held_by_requeue is False
    assert job_id in {each.job_id for each in client.jobs(job_id) if isinstance(each, SlurmJob)}
    cluster.run("scancel", job_id)


def test_a_job_is_read_and_replaced_by_its_next_start(
    driver: SlurmDriver, client: SlurmClient, submit: Callable[..., str], cluster: Cluster
) -> None:
    job_id = submit()
    assert _reading(driver, job_id, JobState.RUNNING).run_id == "run-1"
    target = RestartTarget("incident", "run-1", job_id, 0, "why")
    assert driver.prepare(target).outcome is CallOutcome.ACCEPTED
    held = _reading(driver, job_id, JobState.HELD)
    assert (held.generation, held.refusal) == (1, None)
    assert [job.held_by_requeue for job in client.jobs() if isinstance(job, SlurmJob) and job.job_id == job_id] == [
        True
    ]
    assert driver.commit(target).outcome is CallOutcome.ACCEPTED
    assert _reading(driver, job_id, JobState.RUNNING).generation == 1
    cluster.run("scancel", job_id)
    assert _reading(driver, job_id, JobState.CANCELLED).generation == 1


def test_a_job_that_slurm_does_not_have_is_absent(driver: SlurmDriver) -> None:
    assert driver.job("99999") == Absent()


def test_tasks_of_an_array_are_distinguished(
    driver: SlurmDriver, client: SlurmClient, submit: Callable[..., str], cluster: Cluster
) -> None:
    array = submit("--array=0-2%1")
    (task,) = wait_until(
        lambda: [job for job in client.jobs() if isinstance(job, SlurmJob) and job.target == f"{array}_0"],
        "its first task runs",
    )
    _reading(driver, task.job_id, JobState.RUNNING)
    rest = driver.job(array)
    assert isinstance(rest, ScheduledJob)
    assert rest.refusal == f"job {array} stands for several array tasks"
    assert driver.prepare(RestartTarget("incident", "run-1", task.job_id, 0, "why")).detail.endswith(
        f"requeuehold Incomplete {array}_0: status 0"
    )
    cluster.run("scancel", array)
