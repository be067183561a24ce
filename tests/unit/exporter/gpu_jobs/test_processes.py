"""What processes and control groups say: SLURM's count is that of device files, CUDA's restarts in each job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import MINORS, NodeTree, job, jobs_of, samples, training
from tests.users import needs_root
from tests.waiting import wait_until
from trainwarden_exporter.collectors.gpu_jobs import collector as collector_module
from trainwarden_exporter.collectors.gpu_jobs import processes as process_module
from trainwarden_exporter.collectors.gpu_jobs.processes import Processes, open_gpus

V2 = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
V1 = "/slurm/uid_1000/job_4711/step_batch"
# As a user may make them below a service of his own.
FORGED_GROUPS = (
    "/user.slice/user-1000.slice/user@1000.service/job_666/step_0",
    "/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_666/step_0",
    "/user.slice/user-1000.slice/user@1000.service/slurm/uid_1000/job_666",
)


def index_of(minor: int) -> int:
    """What NVML counts the GPU of a device file as."""
    return MINORS.index(minor)


def test_the_step_and_its_gpus_come_from_the_control_group_and_slurms_own_count(node: NodeTree) -> None:
    said: dict[str, Any] = {"SLURM_JOB_USER": "mallory", "SLURM_JOB_PARTITION": "main", "TRAINWARDEN_RUN_ID": "r1"}
    node.process(100, V2, SLURM_JOB_ID="4711", SLURM_STEP_GPUS="0,3", CUDA_VISIBLE_DEVICES="0,1", **said)
    assert jobs_of(node.page()) == {
        job(index_of(0), "4711", "0", "alice", partition="main", run="r1"),
        job(index_of(3), "4711", "0", "alice", partition="main", run="r1"),
        training(index_of(0), "r1"),
        training(index_of(3), "r1"),
    }


def test_an_environment_alone_makes_no_job(node: NodeTree) -> None:
    """Any user may set SLURM_JOB_ID; a second series of a GPU would break every join with it."""
    node.process(100, V2, SLURM_JOB_ID="4711", SLURM_STEP_GPUS="0")
    said: dict[str, Any] = {
        "SLURM_JOB_ID": "666",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_STEP_ID": "0",
        "TRAINWARDEN_RUN_ID": "mine",
    }
    node.process(101, devices=(2,), **said)
    for pid, group in enumerate(FORGED_GROUPS, 102):
        node.process(pid, group, **said)
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice"), training(index_of(2), "mine")}


@pytest.mark.parametrize(("step", "shown"), [("4711.batch", "batch"), ("4711.4294967291", "batch"), ("4711+1.3", "3")])
def test_without_control_groups_the_slurmstepd_above_a_process_names_job_and_step(
    node: NodeTree, step: str, shown: str
) -> None:
    node.slurmstepd(50, step)
    node.process(99, parent=50, SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1")
    node.process(100, parent=99, SLURM_JOB_ID="1", SLURM_JOB_GPUS="1")
    assert jobs_of(node.page()) == {job(index_of(1), "4711", shown, "alice")}


def test_a_program_of_a_user_that_is_named_slurmstepd_is_none(node: NodeTree) -> None:
    node.slurmstepd(50, "4711.0", uid=os.getuid() + 1)
    node.process(100, parent=50, SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1")
    node.process(60, parent=60, SLURM_JOB_ID="4711")
    assert jobs_of(node.page()) == set()


def test_a_job_cannot_claim_the_gpus_of_another(node: NodeTree) -> None:
    node.process(100, V2, devices=(0,), SLURM_STEP_GPUS="0")
    node.process(200, V2.replace("4711", "9"), devices=(1,), SLURM_STEP_GPUS="0,1,2")
    assert jobs_of(node.page()) == {
        job(index_of(0), "4711", "0", "alice"),
        job(index_of(1), "9", "0", "alice"),
        job(index_of(2), "9", "0", "alice"),  # nothing contradicts it
    }
    node.device_group("uid_1000/job_9/step_0", (1,))
    assert job(index_of(2), "9", "0", "alice") not in node.page(), "slurmd's own list does"


def test_two_jobs_that_claim_one_gpu_by_their_environments_alone_have_it_neither(node: NodeTree) -> None:
    node.process(100, V2, SLURM_STEP_GPUS="0")
    node.process(200, V2.replace("4711", "9"), SLURM_STEP_GPUS="0,1", TRAINWARDEN_RUN_ID="r9")
    assert jobs_of(node.page()) == {job(index_of(1), "9", "0", "alice", run="r9"), training(index_of(1), "r9")}


def test_a_gpu_that_two_jobs_share_has_both(node: NodeTree) -> None:
    for pid, group in ((100, V2), (200, V2.replace("4711", "9"))):
        node.process(pid, group, devices=(0,), SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), each, "0", "alice") for each in ("4711", "9")}


def test_a_process_that_looks_at_every_gpu_has_those_of_its_step(node: NodeTree) -> None:
    """As one that reads NVML does where SLURM does not constrain devices."""
    node.process(100, V2, devices=(0, 1, 2, 3), SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice")}


def test_a_process_cannot_claim_another_job_than_its_control_groups(node: NodeTree) -> None:
    node.process(100, V2, SLURM_JOB_ID="1", SLURM_JOB_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice")}


def test_batch_script_and_step_are_one_series_of_a_gpu(node: NodeTree) -> None:
    node.process(100, V1, SLURM_JOB_GPUS="0")
    node.process(101, V2, SLURM_JOB_GPUS="0", SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice")}


def test_two_steps_on_one_gpu_leave_the_step_open(node: NodeTree) -> None:
    node.process(100, V2, SLURM_STEP_GPUS="0")
    node.process(101, V2.replace("step_0", "step_1"), SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", user="alice")}


def test_what_one_source_leaves_out_another_gives(node: NodeTree) -> None:
    (node.files / str(index_of(0))).write_text("4711 user=alice\n")
    node.process(100, V2, SLURM_STEP_GPUS="0", SLURM_JOB_PARTITION="main", SLURM_JOB_USER="mallory")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice", partition="main")}


def test_device_control_groups_count_where_no_environment_can_be_read(node: NodeTree) -> None:
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


def test_a_process_works_for_no_run_of_another_user(node: NodeTree) -> None:
    """Any process may have the run id of another user's run in its environment."""
    node.process(100, devices=(0,), uid=1000, TRAINWARDEN_RUN_ID="r1")
    node.process(101, devices=(1,), uid=1001, TRAINWARDEN_RUN_ID="r1")
    node.process(102, V2, devices=(2,), uid=1001, SLURM_STEP_GPUS="2", TRAINWARDEN_RUN_ID="r1")
    node.process(103, devices=(3,), uid=0, TRAINWARDEN_RUN_ID="r1")
    user = {line for line in jobs_of(node.page({"r1": 1000})) if line.startswith("training_gpu_info")}
    assert user == {training(index_of(0), "r1"), training(index_of(3), "r1")}
    assert not any('job_id="4711"' in line and 'run_id="r1"' in line for line in node.page({"r1": 1000}))
    unknown = {line for line in node.page() if line.startswith("training_gpu_info")}
    assert len(unknown) == 4, "a run without a record here has no owner to compare with"


def test_a_user_whose_processes_name_very_many_runs_hides_no_gpu_of_another(
    node: NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "MAX_CLAIMS", 4)
    for pid in range(100, 110):
        node.process(pid, devices=(0,), uid=1001, TRAINWARDEN_RUN_ID=f"a{pid}")
    node.process(200, devices=(1,), uid=1000, TRAINWARDEN_RUN_ID="mine")
    shown = jobs_of(node.page())
    assert training(index_of(1), "mine") in shown
    assert len(shown) == 4


def test_environments_that_may_not_be_read_are_counted_where_they_belong_to_jobs(
    node: NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is made up."""
    for pid, cgroup in ((100, V2), (101, "/")):
        node.process(pid, cgroup, SLURM_JOB_GPUS="0")

    def refused(process: str, names: object) -> dict[str, str]:
        raise PermissionError(process, names)

    monkeypatch.setattr(process_module, "read_environment", refused)
    page = node.page()
    assert jobs_of(page) == set()
    assert 'trainwarden_gpu_jobs_unreadable{source="environments"}' in page


def test_a_process_that_ends_while_it_is_read_costs_no_other(node: NodeTree) -> None:
    (node.process(100, V2) / "cgroup").unlink()
    node.process(101, V2, SLURM_STEP_GPUS="0")
    assert jobs_of(node.page()) == {job(index_of(0), "4711", "0", "alice")}


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
    processes = Processes(node.procfs, now=lambda: now[0])
    reads = []
    for second in (0, 5, 15, 20, 70, 76):
        now[0] = float(second)
        processes.jobs()
        reads.append(processes.reads)
    assert reads == [1, 2, 3, 3, 3, 4]


@pytest.mark.process
def test_a_real_process_is_reported_by_the_process_that_started_it(node: NodeTree) -> None:
    said = {"SLURM_JOB_ID": "77", "SLURM_JOB_GPUS": "2", "TRAINWARDEN_RUN_ID": "r7"}
    environment = {"PATH": os.environ["PATH"], **said}
    (node.rootfs / "etc/passwd").write_text(f"me:x:{os.getuid()}:0::/:/bin/sh\n")
    stepd = subprocess.Popen(
        ["slurmstepd: [77.0]", "-c", "sleep 600 & echo $!; wait"],
        executable="/bin/sh",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    alone = subprocess.Popen(["sleep", "600"], env={**environment, "SLURM_JOB_ID": "78"})
    try:
        assert stepd.stdout is not None
        sleeping = int(stepd.stdout.readline())
        for pid in (stepd.pid, sleeping, alone.pid):
            (node.procfs / str(pid)).symlink_to(f"/proc/{pid}")
        expected = {job(index_of(2), "77", "0", "me", run="r7"), training(index_of(2), "r7")}
        # Until the process has become what was started.
        wait_until(lambda: jobs_of(samples(node.collector())) == expected)
    finally:
        os.killpg(stepd.pid, signal.SIGKILL)
        alone.kill()
        stepd.communicate()
        alone.wait()


@pytest.mark.process
def test_a_file_that_a_user_names_as_a_gpu_in_a_namespace_of_its_own_is_none(tmp_path: Path) -> None:
    # Any user may mount a file system at any place that it alone sees.
    forging = "mount -t tmpfs t /dev && : > /dev/nvidia0 && echo mounted && exec sleep 600 < /dev/nvidia0"
    with subprocess.Popen(["unshare", "-Urm", "sh", "-c", forging], stdout=subprocess.PIPE, text=True) as forger:
        try:
            assert forger.stdout is not None
            if not forger.stdout.readline():
                pytest.skip("no user namespaces here")
            wait_until(lambda: str(Path(f"/proc/{forger.pid}/fd/0").readlink()) == "/dev/nvidia0")
            assert open_gpus(f"/proc/{forger.pid}") == frozenset()
        finally:
            forger.kill()


@needs_root
def test_a_user_with_very_many_processes_hides_those_of_no_other(
    node: NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "MAX_PROCESSES", 4)
    for pid in (*range(100, 110), 200):
        folder = node.process(pid, devices=(0,), uid=1000, TRAINWARDEN_RUN_ID=f"r{pid}")
        os.chown(folder, 1000 if pid == 200 else 1001, -1)
    found = {job.run_id for job in Processes(node.procfs).jobs()}
    assert "r200" in found
    assert len(found) == 5


@needs_root
def test_a_user_whose_processes_take_long_to_look_at_hides_those_of_no_other(
    node: NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    pids = {str(node.process(pid, "/", uid=1001 if pid < 50 else 1002)): str(pid) for pid in (*range(30, 40), 50)}

    def slow(path: str, _: Any) -> process_module.ProcessJob:
        now[0] += 0.4
        return process_module.ProcessJob(job_id=pids[path], gpus=frozenset((0,)))

    monkeypatch.setattr(process_module, "job_of", slow)
    processes = Processes(node.procfs, now=lambda: now[0])
    first = {job.job_id for job in processes.jobs()}
    assert "50" in first
    assert len(first) == 1 + 3
    # Those that are left come next, once the first are no longer young.
    for _ in range(10):
        now[0] += process_module.YOUNG_SECONDS
        jobs = {job.job_id for job in processes.jobs()}
    assert jobs == set(pids.values())
