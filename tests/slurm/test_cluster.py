"""The cluster that the other tests rely on is a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, running_cluster
from tests.slurm.programs import Programs
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm


def _script(folder: Path, body: str) -> Path:
    script = folder / "job.sbatch"
    script.write_text(f"#!/bin/sh\n#SBATCH --nodes=2 --output={folder}/output\n{body}\n", encoding="utf-8")
    return script


def test_srun_runs_one_task_on_each_of_two_nodes(cluster: Cluster) -> None:
    nodes = cluster.run("srun", "--nodes=2", "--ntasks-per-node=1", "printenv", "SLURMD_NODENAME").split()
    assert len(set(nodes)) == 2


def test_a_batch_job_starts_a_step_on_both_of_its_nodes(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(_script(tmp_path, "srun printenv SLURMD_NODENAME"))
    wait_until(cluster.in_state(job_id, "COMPLETED"), "the job ends")
    assert len(set((tmp_path / "output").read_text().split())) == 2


def test_scancel_ends_a_job_as_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(_script(tmp_path, "srun sleep 600"))
    wait_until(cluster.in_state(job_id, "RUNNING"), "the job runs")
    cluster.run("scancel", str(job_id))
    wait_until(cluster.in_state(job_id, "CANCELLED"), "the job is cancelled")


def test_a_requeued_job_starts_again_with_the_same_id_within_seconds(cluster: Cluster, tmp_path: Path) -> None:
    """The restart tests would take minutes each if the credentials' lifetime were not as short as it can be."""
    body = f'echo "$SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}}" >> {tmp_path}/starts; exec sleep 600'
    job_id = cluster.submit(_script(tmp_path, body))
    wait_until(cluster.in_state(job_id, "RUNNING"), "the job runs")
    cluster.run("scontrol", "requeuehold", "Incomplete", str(job_id))
    wait_until(cluster.in_state(job_id, "PENDING"), "the job is held")
    cluster.run("scontrol", "release", str(job_id))
    job = wait_until(cluster.in_state(job_id, "RUNNING"), "the job runs again")
    wait_until(lambda: (tmp_path / "starts").read_text().count("\n") == 2, "its script has started")
    assert job.restarts == 1
    assert (tmp_path / "starts").read_text() == f"{job_id} 0\n{job_id} 1\n"
    cluster.run("scancel", str(job_id))


@pytest.mark.nightly
def test_stopping_a_cluster_leaves_no_process_of_a_running_job(slurm_programs: Programs, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with running_cluster(slurm_programs) as own:
        own.submit(
            _script(tmp_path, f'trap "" TERM; echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; srun sleep 600')
        )
        wait_until(pid_file.exists, "the job's pid")
        process = Path("/proc") / pid_file.read_text().strip()
        assert process.exists()
    wait_until(lambda: not process.exists(), "init has reaped the job")
    assert not own.folder.exists()
