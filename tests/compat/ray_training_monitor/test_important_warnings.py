"""Trainings that only look alive: idle GPUs, and NCCL that has fallen back to TCP."""

from __future__ import annotations

import pytest

from tests.compat.ray_training_monitor.conftest import EFA, POD, SOCKET, Pod, Script
from tests.ray.head import GPUS
from tests.unit.exporter.ray.dashboard import dashboard, good, job, status
from tests.waiting import wait_until
from trainwarden.ray import check_efa_utilization, check_gpu_utilization, verify_ray_resources

TITLE = "Training Monitor Skill"
submitted = pytest.mark.seed(TITLE, "Do NOT Monitor Jobs Started with `ray job submit`")
efa = pytest.mark.seed(TITLE, "Verify EFA is Being Used (Not Just Present)")


@submitted
@pytest.mark.process
def test_a_job_that_runs_beside_idle_gpus_is_told_from_one_that_works(
    lone_pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUNNING, each GPU at 0 %, and Ray has GPUs of which none is used."""
    lone_pod.program("nvidia-smi", '#!/bin/sh\ncase "$1" in *gpu=*) echo 0, 3, 81920; echo 0, 3, 81920 ;; esac\n')
    gpu_info = check_gpu_utilization(POD)
    assert (gpu_info["healthy"], gpu_info["gpu_utilizations"], gpu_info["avg_utilization"]) == (True, [0, 0], 0)
    answers = good([job("raysubmit_x", "RUNNING")])
    answers["/api/cluster_status"] = status(" 0.0/4.0 GPU\n")
    with dashboard(answers) as served:
        monkeypatch.setenv("TRAINWARDEN_RAY_DASHBOARD", served.url)
        resources = verify_ray_resources(POD)
        assert (resources["healthy"], resources["gpus_used"], resources["gpus_available"]) == (True, 0, 4)
        assert "no GPU is allocated" in resources["warning"]
        answers["/api/cluster_status"] = status(" 2.0/4.0 GPU\n")
        assert verify_ray_resources(POD)["warning"] == ""


@submitted
@pytest.mark.ray
def test_the_verification_after_a_start(pod: Pod, standing_job: str, script: Script) -> None:
    """As a script of its own, of a job that holds a GPU and uses EFA."""
    pod.log(standing_job, EFA)
    wait_until(lambda: verify_ray_resources(POD)["gpus_used"] >= 1, "Ray counts the GPU")
    ran = script("verification.py", POD)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[:4] == ["GPUs: 2", "Average utilization: 94.0%", "  GPU 0: 97.0%", "  GPU 1: 91.0%"]
    (used,) = lines[4:]
    assert used.startswith("GPUs used: ")
    assert used.endswith(f"/{GPUS}.0")


@efa
@pytest.mark.ray
@pytest.mark.parametrize(
    ("lines", "active", "transport"), [(EFA, True, "ofi"), (SOCKET, False, "socket"), ("no NCCL\n", False, "unknown")]
)
def test_transport_of_nccl_in_the_logs_of_a_job(
    pod: Pod, standing_job: str, lines: str, active: bool, transport: str
) -> None:
    pod.log(standing_job, lines)
    found = check_efa_utilization(POD)
    assert (found["efa_active"], found["transport"]) == (active, transport)
    assert found["details"]


@efa
@pytest.mark.ray
def test_one_process_that_has_fallen_back_is_enough(pod: Pod, standing_job: str) -> None:
    pod.log(standing_job, EFA + SOCKET)
    found = check_efa_utilization(POD)
    assert (found["efa_active"], found["transport"]) == (False, "socket")
    assert "NET/Socket" in found["details"]


@efa
@pytest.mark.ray
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="jobs that have ended count: what one used long ago is said of those that run, and where none runs",
)
def test_transport_is_that_of_the_jobs_that_run(pod: Pod, standing_job: str, failed_job: str) -> None:
    pod.log(failed_job, SOCKET)
    nothing_runs = check_efa_utilization(POD)["transport"]
    pod.log(standing_job, EFA)
    beside_one = check_efa_utilization(POD)
    assert [nothing_runs, beside_one["transport"], beside_one["efa_active"]] == ["unknown", "ofi", True]
