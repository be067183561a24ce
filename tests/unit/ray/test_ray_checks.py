"""What the checks of `trainwarden.ray` make of answers that a real cluster here does not give."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.ray.kubectl import write_kubectl
from tests.unit.exporter.ray.dashboard import dashboard, good, gpu_node, job, status
from trainwarden.clients.ray import RayError, RayJob
from trainwarden.clients.ray_jobs import RaySubmission, SubmittedJob
from trainwarden.ray import (
    auto_restart,
    check_efa_utilization,
    check_gpu_utilization,
    detect_stall,
    find_latest_checkpoint,
    get_training_health,
    health,
    jobs,
    monitor,
    print_training_health,
)
from trainwarden.ray.head import open_head
from trainwarden.ray.jobs import step_in

POD = "head-pod"


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod whose programs are those of the folder that is returned; it has no Ray."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv(
        "TRAINWARDEN_KUBECTL", str(write_kubectl(tmp_path / "kubectl", {"PATH": f"{programs}:/usr/bin:/bin"}))
    )
    monkeypatch.setenv("TRAINWARDEN_RAY_DASHBOARD", "http://127.0.0.1:9")
    monkeypatch.setattr(jobs, "SESSION_LOGS", str(tmp_path / "logs"))
    monkeypatch.setattr(health, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(monitor, "_known", {})
    return programs


def smi(programs: Path, body: str) -> None:
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    (programs / "nvidia-smi").chmod(0o755)


@pytest.mark.parametrize(
    ("lines", "active", "transport"),
    [
        (["n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa"], True, "ofi"),
        (["n1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"], False, "socket"),
        # One process of two has fallen back, and any NET/OFI line does not outweigh it.
        (
            ["n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa", "n2:7:8 [0] NCCL INFO Using network Socket"],
            False,
            "socket",
        ),
        (["n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm"], False, "ofi"),
        (["n1:1:2 [0] NCCL INFO Using network IB"], False, "ib"),
        (["a line of NET/OFI that is none of NCCL"], False, "unknown"),
        ([], False, "unknown"),
    ],
)
@pytest.mark.process
def test_the_network_is_what_every_process_uses(
    pod: Path, tmp_path: Path, lines: list[str], active: bool, transport: str
) -> None:
    (tmp_path / "logs").mkdir()
    for number, line in enumerate(lines):
        (tmp_path / f"logs/worker-{number}.out").write_text(f"\x1b[36m(Worker pid=1)\x1b[0m {line}\n")
    found = check_efa_utilization(POD)
    assert (found["efa_active"], found["transport"]) == (active, transport)
    assert found["details"]


@pytest.mark.process
def test_a_gpu_that_is_idle_once_is_looked_at_again(pod: Path, tmp_path: Path) -> None:
    smi(pod, f"case $1 in *gpu=*) echo x >> {tmp_path}/n; n=$(wc -l < {tmp_path}/n); echo $((n / 2 * 90)), 1, 2;; esac")
    report = get_training_health(POD, str(tmp_path))
    assert report["gpu"]["avg_utilization"] == 90
    assert not any("busy" in issue for issue in report["issues"])
    smi(pod, "case $1 in *gpu=*) echo 2, 1, 2;; esac")
    assert any("less than 5 %" in issue for issue in get_training_health(POD, str(tmp_path))["issues"])


def test_an_address_in_the_place_of_a_pod_gives_all_that_the_dashboard_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PAUSE_SECONDS", 0.0)
    (tmp_path / "step_40").mkdir()
    answers = good([job("raysubmit_x", "RUNNING")])
    answers["/nodes"] = {"result": True, "data": {"summary": [gpu_node("a", 90, 80), gpu_node("b", 70)]}}
    answers["/api/cluster_status"] = status(" 3.0/4.0 GPU\n")
    with dashboard(answers) as served:
        found = check_gpu_utilization(served.url)
        assert (found["healthy"], found["gpu_utilizations"], found["avg_utilization"]) == (True, [90, 80, 70], 80)
        assert (found["gpu_count"], found["memory_total"], found["processes"]) == (3, [], [])
        report = get_training_health(served.url, str(tmp_path))
        assert (report["healthy"], report["issues"]) == (True, [])
        assert report["efa"] == {"active": False, "transport": health.NO_LOGS, "channels": ""}
        assert report["checkpoints"]["latest_step"] == 40
        assert report["ray"] == {"gpus_used": 3, "gpus_available": 4, "cpus_used": 1.5, "cpus_available": 8}
        assert [each["util"] for each in report["gpu"]["per_node"]] == [90, 80, 70]
        answers["/nodes"] = {"result": True, "data": {"summary": [gpu_node("a", 2, 1)]}}
        answers["/api/cluster_status"] = status(" 0.0/4.0 GPU\n")
        idle = get_training_health(served.url, str(tmp_path))["issues"]
        assert [part for part in ("less than 5 %", "no GPU is allocated") if any(part in each for each in idle)] == [
            "less than 5 %", "no GPU is allocated",
        ]  # fmt: skip
    gone = get_training_health(served.url, str(tmp_path))
    assert any("resources of Ray cannot be read: connection" in each for each in gone["issues"])
    assert any("GPUs of http" in each and "cannot be read" in each for each in gone["issues"])


@pytest.mark.process
def test_what_cannot_be_read_is_an_issue_and_never_a_stall(
    pod: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = get_training_health(POD, "/nowhere")
    assert report["healthy"] is False
    print_training_health(report)
    printed = capsys.readouterr().out
    assert "UNHEALTHY" in printed
    for part in ("the GPUs of head-pod cannot be read", "/nowhere cannot be read", "resources of Ray cannot be read"):
        assert part in printed
    assert detect_stall(POD, "raysubmit_x", stagnation_threshold=0.001) is False
    with pytest.raises(RuntimeError, match="its jobs cannot be read"):
        auto_restart(POD, "x", "/nowhere")


def test_an_outage_in_the_middle_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = [1000.0], [True]
    running = SubmittedJob(
        RayJob("x", "", "", "running", "", 0.0, None, None), RaySubmission("x", "python train.py", {}, {})
    )

    def find(*_: object) -> SubmittedJob:
        if not answers[0]:
            raise RayError("connection", "connection: refused")
        return running

    monkeypatch.setattr(monitor, "find_job", find)
    monkeypatch.setattr(monitor, "read_log", lambda *_: "step: 7 loss: 0.5\n" if answers[0] else None)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = monitor.JobProgress(open_head("http://127.0.0.1:9"), "x")
    progress.update()
    answers[0] = False
    now[0] += 1000
    progress.update()
    assert not progress.is_stalled(300)
    answers[0] = True
    progress.update()
    assert progress.is_stalled(300)


@pytest.mark.process
def test_a_pod_with_an_old_python_gives_the_newest_checkpoint_by_its_name(pod: Path, tmp_path: Path) -> None:
    old = f'#!/bin/sh\ncase "$2" in *trainwarden*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    (pod / "python3").write_text(old)
    (pod / "python3").chmod(0o755)
    for name in ("step_90", "step_1000", "step_2000.tmp", "latest"):
        (tmp_path / name).mkdir()
    assert find_latest_checkpoint(str(tmp_path), POD) == f"{tmp_path}/step_1000"


def test_the_entrypoint_in_a_log_is_no_step() -> None:
    first = "INFO job_manager.py:1 -- Running entrypoint for job x: train.py # step: 9000 loss: 1\n"
    assert step_in(first) is None
    assert step_in(first + "step: 11 loss: 0.5\nstep: 12 loss: 0.4\n") == 12
