"""A script for the Ray training monitor runs after changing its import: the names, orders and fields that it uses."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

import trainwarden.ray
from tests.unit.remediator.fake_ray import FakeRay
from trainwarden.ray import jobs
from trainwarden.ray.head import RayHead

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
def test_each_call_that_worked_works(name: str) -> None:
    parameters, fields = FUNCTIONS[name]
    function = getattr(trainwarden.ray, name)
    found = list(inspect.signature(function).parameters.values())
    assert [each.name for each in found[: len(parameters)]] == list(parameters)
    assert [each.default for each in found[: len(parameters)]] == list(parameters.values())
    assert all(each.default is not REQUIRED for each in found[len(parameters) :]), "what is new need not be given"
    returned = getattr(sys.modules[function.__module__], function.__annotations__["return"], object)
    assert fields <= set(getattr(returned, "__annotations__", {}))


RESTARTS = """
head_pod, job_id, retries = "training-head", first, 0
while retries < 5:
    status = check_job_status(head_pod, job_id)
    if status == "SUCCEEDED":
        break
    elif status == "FAILED":
        job_id = submit_job_with_resume(
            head_pod=head_pod,
            checkpoint_path=find_latest_checkpoint(folder),
            config={"entrypoint": "python train.py --resume"},
        )
        retries += 1
        time.sleep(60)
    else:
        time.sleep(30)
"""


def test_a_loop_of_ones_own_restarts_until_the_job_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray, ends, waits = FakeRay(), ["FAILED", "SUCCEEDED"], list[float]()
    ray.add("first", "", "FAILED")
    ray.on_start = lambda job: ray.end(job, ends.pop(0))
    monkeypatch.setattr(jobs, "open_head", lambda *_: RayHead("head", ray, None))
    (tmp_path / "step_1000").mkdir()
    (tmp_path / "step_1000/model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")

    class Time:
        sleep = staticmethod(waits.append)

    names = ("check_job_status", "submit_job_with_resume", "find_latest_checkpoint")
    script = {name: getattr(trainwarden.ray, name) for name in names}
    values: dict[str, Any] = {**script, "first": "first", "folder": str(tmp_path), "time": Time}
    exec(RESTARTS, values)  # the text is the one above
    assert (values["retries"], waits) == (2, [60, 60])
    last = ray.jobs[values["job_id"]]
    assert last["entrypoint"] == "python train.py --resume", "it has a flag of its own"
    assert last["runtime_env"]["env_vars"] == {"TRAINWARDEN_RESUME_CHECKPOINT": f"{tmp_path}/step_1000"}
