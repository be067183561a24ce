"""Names, parameters, defaults and returned fields of each function, and what its parameters do."""

from __future__ import annotations

import inspect
import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import trainwarden.ray
from tests.compat.ray_training_monitor.conftest import POD, PROGRAMS, Pod, unique
from tests.ray.head import GPUS, Head
from tests.unit.remediator.fake_ray import FakeRay
from tests.waiting import wait_until
from trainwarden.ray import (
    auto_restart,
    check_gpu_utilization,
    find_latest_checkpoint,
    get_current_step,
    monitor,
    monitor_job,
    print_training_health,
    restart,
    verify_ray_resources,
)
from trainwarden.ray.head import RayHead

TITLE = "Training Monitor Skill"
pytestmark = pytest.mark.seed(TITLE, "API Reference")

REQUIRED = inspect.Parameter.empty
# Parameters in their order, with their defaults, and the fields of what is returned.
FUNCTIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "auto_restart": (
        {
            "head_pod": REQUIRED, "job_name": REQUIRED, "checkpoint_dir": REQUIRED, "max_retries": 10,
            "retry_delay": 60, "stagnation_threshold": 300, "check_interval": 30,
        },
        {"success", "final_step", "total_retries", "reason"},
    ),
    "monitor_job": (
        {"head_pod": REQUIRED, "job_id": REQUIRED, "check_interval": 30, "timeout": None},
        {"status", "duration", "final_step"},
    ),
    "check_job_status": ({"head_pod": REQUIRED, "job_id": REQUIRED}, set()),
    "get_current_step": ({"head_pod": REQUIRED, "job_id": REQUIRED}, set()),
    "detect_stall": ({"head_pod": REQUIRED, "job_id": REQUIRED, "stagnation_threshold": 300}, set()),
    "submit_job_with_resume": ({"head_pod": REQUIRED, "checkpoint_path": REQUIRED, "config": REQUIRED}, set()),
    "check_gpu_utilization": (
        {"head_pod": REQUIRED, "namespace": "default"},
        {
            "gpu_count", "gpu_utilizations", "memory_used", "memory_total", "processes", "avg_utilization", "healthy",
        },
    ),
    "verify_ray_resources": (
        {"head_pod": REQUIRED, "namespace": "default"},
        {"gpus_available", "gpus_used", "cpus_available", "cpus_used", "healthy"},
    ),
    "check_efa_utilization": ({"head_pod": REQUIRED}, {"efa_active", "transport"}),
    "get_training_health": (
        {"head_pod": REQUIRED, "checkpoint_dir": REQUIRED, "all_pods": None},
        {"healthy", "gpu", "efa", "checkpoints", "issues"},
    ),
    "print_training_health": ({"report": REQUIRED}, set()),
    "find_latest_checkpoint": ({"checkpoint_dir": REQUIRED}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signature_and_returned_fields_of(name: str) -> None:
    parameters, fields = FUNCTIONS[name]
    function = getattr(trainwarden.ray, name)
    found = list(inspect.signature(function).parameters.values())
    assert [each.name for each in found[: len(parameters)]] == list(parameters)
    assert [each.default for each in found[: len(parameters)]] == list(parameters.values())
    assert all(each.default is not REQUIRED for each in found[len(parameters) :]), "what is new need not be given"
    returned = getattr(sys.modules[function.__module__], function.__annotations__["return"], object)
    assert fields <= set(getattr(returned, "__annotations__", {}))


@pytest.mark.process
def test_check_gpu_utilization_returns_what_nvidia_smi_says(lone_pod: Pod) -> None:
    assert check_gpu_utilization(POD, namespace="training") == {
        "gpu_count": 2, "gpu_utilizations": [97, 91], "memory_used": [60000, 61000], "memory_total": [81920, 81920],
        "processes": [
            {"pid": "4711", "name": "/usr/bin/python3, a, b", "gpu": "NVIDIA H100", "memory": "60000 MiB"}
        ],
        "avg_utilization": 94, "healthy": True, "error": "",
    }  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "expected"),
    [("echo 'No devices were found' >&2; exit 6", "exit code 6"), ("echo gibberish", "nvidia-smi"), ("", "")],
)
def test_check_gpu_utilization_of_gpus_that_cannot_be_read_is_not_healthy_and_not_idle(
    lone_pod: Pod, body: str, expected: str
) -> None:
    lone_pod.program("nvidia-smi", f"#!/bin/sh\n{body}\n")
    found = check_gpu_utilization(POD)
    assert (found["healthy"], found["gpu_count"]) == (not body, 0)
    assert expected in found["error"]


@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a GPU without a number makes the message that of a float's conversion"
)
def test_check_gpu_utilization_of_a_gpu_that_states_no_number_says_so(lone_pod: Pod) -> None:
    """As one in MIG mode does."""
    lone_pod.program("nvidia-smi", "#!/bin/sh\necho '[N/A], 100, 200'\n")
    found = check_gpu_utilization(POD)
    assert found["healthy"] is False
    assert "[N/A]" in found["error"]
    assert "float" not in found["error"]


@pytest.mark.ray
def test_verify_ray_resources_returns_what_ray_has_and_uses(pod: Pod, standing_job: str) -> None:
    wait_until(lambda: verify_ray_resources(POD)["gpus_used"] >= 1, "Ray counts the GPU")
    found = verify_ray_resources(POD, namespace="default")
    assert (found["healthy"], found["gpus_available"], found["cpus_available"]) == (True, GPUS, 4)
    assert 1 <= found["gpus_used"] <= GPUS
    assert 0 <= found["cpus_used"] <= 4
    assert verify_ray_resources("another-pod")["healthy"] is False


@pytest.mark.ray
def test_print_training_health_prints_each_part_and_each_issue(
    pod: Pod, standing_job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = trainwarden.ray.get_training_health(POD, "/no/such/folder")
    print_training_health(report)
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "training health: UNHEALTHY"
    for part in ("GPUs", "EFA", "checkpoints", "Ray", *report["issues"]):
        assert part in printed


@pytest.mark.ray
def test_auto_restart_ends_a_job_that_stalls_before_the_next_begins_and_gives_up_at_max_retries(
    pod: Pod, head: Head, tmp_path: Path
) -> None:
    job = unique("stalls")
    head.submit(f"{head.python} {PROGRAMS}/train.py {tmp_path}/checkpoints 9 hangs", submission_id=job)
    result = auto_restart(
        POD, job, str(tmp_path / "checkpoints"), max_retries=1, retry_delay=0, stagnation_threshold=2,
        check_interval=0.5,
    )  # fmt: skip
    assert (result["success"], result["total_retries"]) == (False, 1)
    assert result["reason"].startswith("max_retries_reached")
    assert head.state(job) == "STOPPED"
    assert get_current_step(POD, result["job_id"]) == 6, "it went on from the checkpoint"
    head.end(result["job_id"])


@pytest.mark.ray
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a job that has reached its last step and writes its model counts as stalled",
)
def test_auto_restart_lets_a_job_at_its_last_step_finish(pod: Pod, head: Head, tmp_path: Path) -> None:
    job = unique("exports")
    head.submit("echo step: 3/3 loss: 0.5; sleep 8; echo exported", submission_id=job)
    result = auto_restart(
        POD, job, str(tmp_path), max_retries=0, retry_delay=0, stagnation_threshold=1, check_interval=0.5
    )
    head.end(job)
    assert (result["success"], result["reason"]) == (True, "completed")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A cluster on which each new job fails at once, for delays that nobody can wait for."""
    found = FakeRay()
    found.on_start = lambda job: found.end(job, "FAILED")
    for module in (restart, monitor):
        monkeypatch.setattr(module, "open_head", lambda *_: RayHead("head", found, None))
    monkeypatch.setattr(monitor, "read_log", lambda *_: "step: 3 loss: 1.0\n")
    return found


def test_auto_restart_waits_retry_delay_and_doubles_it(
    cluster: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add("first", "", "FAILED", metadata={"job_name": "my-training"}, job_id="01", end_time=1)
    (tmp_path / "step_3").mkdir()
    (tmp_path / "step_3/model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    now = [0.0]
    begun: list[float] = []
    fails = cluster.on_start

    def start(job: str) -> None:
        begun.append(now[0])
        fails(job)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    cluster.on_start = start
    monkeypatch.setattr(time, "sleep", sleep)
    result = auto_restart(
        "training-head", "my-training", str(tmp_path), max_retries=3, retry_delay=60, check_interval=0
    )
    assert (result["total_retries"], result["reason"]) == (3, "max_retries_reached after FAILED")
    assert begun == [60, 60 + 120, 60 + 120 + 240]
    assert find_latest_checkpoint(str(tmp_path)) == f"{tmp_path}/step_3"


@pytest.mark.seed(TITLE, "Features")
def test_monitor_job_logs_status_step_and_throughput(
    cluster: FakeRay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add("job", "")
    now, printed = [100.0], ["step: 10 loss: 1.0\n", "step: 10 loss: 1.0\n", "step: 40 loss: 0.9\n"]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        printed.pop(0)
        if len(printed) == 1:
            cluster.end("job", "SUCCEEDED")

    monkeypatch.setattr(monitor, "read_log", lambda *_: printed[0])
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "trainwarden.ray"):
        assert monitor_job("head", "job", check_interval=30)["final_step"] == 40
    said = [each.getMessage() for each in caplog.records]
    assert said == [
        "job job: step 10",
        "job job: None -> RUNNING",
        "job job: step 40, 0.5 steps/s",
        "job job: RUNNING -> SUCCEEDED",
    ]
