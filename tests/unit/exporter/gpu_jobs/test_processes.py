"""What processes and control groups say: SLURM's count is that of device files, CUDA's restarts in each job."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import MINORS, NodeTree, job, jobs_of, samples, training
from tests.waiting import wait_until
from trainwarden_exporter.collectors.gpu_jobs import processes as process_module
from trainwarden_exporter.collectors.gpu_jobs.processes import Processes

V2 = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
V1 = "/slurm/uid_1000/job_4711/step_batch"


def index_of(minor: int) -> int:
    """What NVML counts the GPU of a device file as."""
    return MINORS.index(minor)


def test_the_step_and_its_gpus_come_from_the_control_group_and_slurms_own_count(node: NodeTree) -> None:
    said: dict[str, Any] = {"SLURM_JOB_USER": "alice", "SLURM_JOB_PARTITION": "main", "TRAINWARDEN_RUN_ID": "r1"}
    node.process(100, V2, SLURM_JOB_ID="4711", SLURM_STEP_GPUS="0,3", CUDA_VISIBLE_DEVICES="0,1", **said)
    assert jobs_of(node.page()) == {
        job(index_of(0), "4711", "0", "alice", partition="main", run="r1"),
        job(index_of(3), "4711", "0", "alice", partition="main", run="r1"),
        training(index_of(0), "r1"),
        training(index_of(3), "r1"),
    }


def test_without_control_groups_the_environment_names_job_and_step(node: NodeTree) -> None:
    node.process(100, SLURM_JOB_ID="4711", SLURM_STEP_ID="4294967291", SLURM_JOB_GPUS="1")
    assert jobs_of(node.page()) == {job(index_of(1), "4711", "batch")}


def test_a_process_cannot_claim_another_job_than_its_control_groups(node: NodeTree) -> None:
    node.process(100, V2, SLURM_JOB_ID="1", SLURM_JOB_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0")}


def test_batch_script_and_step_are_one_series_of_a_gpu(node: NodeTree) -> None:
    node.process(100, V1, SLURM_JOB_GPUS="0")
    node.process(101, V2, SLURM_JOB_GPUS="0", SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0")}


def test_two_steps_on_one_gpu_leave_the_step_open(node: NodeTree) -> None:
    node.process(100, V2, SLURM_STEP_GPUS="0")
    node.process(101, V2.replace("step_0", "step_1"), SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711")}


def test_what_one_source_leaves_out_another_says(node: NodeTree) -> None:
    (node.files / str(index_of(0))).write_text("4711 user=alice\n")
    node.process(100, V2, SLURM_STEP_GPUS="0", SLURM_JOB_PARTITION="main", SLURM_JOB_USER="mallory")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice", partition="main")}


def test_device_control_groups_say_it_where_no_environment_can_be_read(node: NodeTree) -> None:
    node.device_group("uid_1000/job_4711", (0, 1, 2, 3))
    node.device_group("uid_1000/job_4711/step_0", (0, 3))
    node.device_group("uid_1001/job_9", (1,))
    assert jobs_of(node.page()) == {
        job(index_of(0), "4711", "0"),
        job(index_of(3), "4711", "0"),
        job(index_of(1), "9"),
    }


def test_outside_slurm_a_run_has_the_gpus_that_its_processes_have_open(node: NodeTree) -> None:
    node.process(100, devices=(2,), TRAINWARDEN_RUN_ID="r1", CUDA_VISIBLE_DEVICES="0")
    node.process(101, devices=(1,))
    node.process(102, devices=(0,), TRAINWARDEN_RUN_ID="../x")
    assert jobs_of(node.page()) == {training(index_of(2), "r1")}


def test_environments_that_may_not_be_read_are_counted_where_they_belong_to_jobs(
    node: NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is made up."""
    for pid, cgroup in ((100, V2), (101, "/")):
        node.process(pid, cgroup, SLURM_JOB_GPUS="0")
    read = process_module.read_file

    def refused(path: str, limit: int) -> bytes:
        if path.endswith("environ"):
            raise PermissionError
        return read(path, limit)

    monkeypatch.setattr(process_module, "read_file", refused)
    page = node.page()
    assert jobs_of(page) == set()
    assert 'trainwarden_gpu_jobs_unreadable{source="environments"}' in page


def test_a_process_that_ends_while_it_is_read_costs_no_other(node: NodeTree) -> None:
    (node.process(100, V2) / "cgroup").unlink()
    node.process(101, V2, SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0")}


def test_odd_environments_are_no_claim(node: NodeTree) -> None:
    node.process(100, SLURM_JOB_ID="../1", SLURM_JOB_GPUS="0")
    node.process(101, V2, SLURM_JOB_GPUS="x,-1,99999999999,77,²")
    (node.process(102) / "environ").write_bytes(b"\xff=\xff\0SLURM_JOB_ID\0=\0" * 50_000)
    assert jobs_of(node.page()) == set()


def test_a_job_that_has_ended_leaves_the_page(node: NodeTree) -> None:
    collector = node.collector()
    folder = node.process(100, V2, SLURM_STEP_GPUS="0")
    assert jobs_of(samples(collector)) != set()
    shutil.rmtree(folder)
    assert jobs_of(samples(collector)) == set()


def test_without_gpus_no_process_is_looked_at(tmp_path: Path) -> None:
    tree = NodeTree(tmp_path, gpus=0)
    tree.process(100, V2, SLURM_STEP_GPUS="0")
    assert tree.page() == set()


def test_an_old_process_is_read_once_a_minute_and_a_young_one_each_time(node: NodeTree) -> None:
    node.process(30, "/")
    now = [0.0]
    processes = Processes(node.procfs, lambda: now[0])
    reads = []
    for second in (0, 5, 15, 20, 70, 76):
        now[0] = float(second)
        processes.jobs()
        reads.append(processes.reads)
    assert reads == [1, 2, 3, 3, 3, 4]


@pytest.mark.process
def test_a_real_process_is_told_by_its_environment(node: NodeTree) -> None:
    said = {"SLURM_JOB_ID": "77", "SLURM_JOB_GPUS": "2", "TRAINWARDEN_RUN_ID": "r7"}
    process = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **said})
    try:
        (node.procfs / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        expected = {job(index_of(2), "77", run="r7"), training(index_of(2), "r7")}
        # Until the process has become what was started.
        wait_until(lambda: jobs_of(samples(node.collector())) == expected)
    finally:
        process.kill()
        process.wait()
