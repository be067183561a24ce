"""`trainwarden.ray` with a real head, beyond what tests/compat/ray_training_monitor holds."""

from __future__ import annotations

import io
import logging
import re
import threading
import zipfile
from pathlib import Path

import pytest

from tests.ray.head import Head, running_head
from tests.ray.kubectl import write_kubectl
from tests.waiting import wait_until
from trainwarden.clients import ray_jobs
from trainwarden.clients.ray import RayDashboardOverHttp
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden.ray import (
    auto_restart,
    check_efa_utilization,
    check_gpu_utilization,
    check_job_status,
    get_current_step,
    get_job_logs,
    get_training_health,
    jobs,
    monitor,
    monitor_job,
    restart,
    submit_job_with_resume,
    verify_ray_resources,
)

pytestmark = pytest.mark.ray

POD = "head-pod"
# Fails until it was resumed from the step that it is told.
TRAIN = """
import os, sys, time
resume = os.environ.get("TRAINWARDEN_RESUME_CHECKPOINT", "")
print("arguments", sys.argv[1:], "resume", resume, flush=True)
start = int(resume.rpartition("_")[2] or 0) if resume else 0
for step in range(start + 1, start + 4):
    print(f"step: {step} loss: {1 / step:.3f}", flush=True)
folder = "FOLDER"
os.makedirs(f"{folder}/global_step_{start + 3}/actor", exist_ok=True)
open(f"{folder}/global_step_{start + 3}/actor/model.safetensors", "wb").write(b"\\2" + bytes(7) + b"{}")
if start + 3 < 9:
    HOW
print("arrived", flush=True)
"""


@pytest.fixture(autouse=True)
def pod(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head as a pod that kubectl reaches."""
    monkeypatch.setenv("TRAINWARDEN_KUBECTL", str(write_kubectl(tmp_path / "kubectl", head.environment)))
    monkeypatch.setenv("TRAINWARDEN_RAY_DASHBOARD", head.url)
    monkeypatch.setattr(jobs, "SESSION_LOGS", str(head.folder / "ray/session_latest/logs"))


def train(head: Head, folder: Path, how: str, **fields: object) -> str:
    script = folder / "train.py"
    script.write_text(TRAIN.replace("FOLDER", str(folder / "checkpoints")).replace("HOW", how))
    return head.submit(f"{head.python} {script}", **fields)


def test_a_resumed_job_knows_its_checkpoint_and_keeps_what_was_configured(head: Head, tmp_path: Path) -> None:
    checkpoint = "/checkpoints/my training/step_1000"
    job = submit_job_with_resume(
        head_pod=POD,
        checkpoint_path=checkpoint,
        config={
            "entrypoint": "printf '%s|' $TRAINWARDEN_RESUME_CHECKPOINT $KEY $CUDA_VISIBLE_DEVICES; printf '<%s>'",
            "runtime_env": {"env_vars": {"KEY": "value"}}, "entrypoint_num_gpus": 2,
        },
    )  # fmt: skip
    assert job.startswith("raysubmit_")
    assert monitor_job(POD, job, check_interval=0.2)["status"] == "SUCCEEDED"
    printed = get_job_logs(POD, job)
    assert f"<--resume_from_checkpoint><{checkpoint}>" in printed
    assert "/checkpoints/my|training/step_1000|value|" in printed
    assert re.search(r"\|value\|[0-3],[0-3]\|", printed)


def test_a_job_that_somebody_stops_is_not_started_again(head: Head, tmp_path: Path) -> None:
    job = train(head, tmp_path, "time.sleep(300)")
    wait_until(lambda: get_current_step(POD, job) == 3, "it works")
    stopping = threading.Thread(target=head.end, args=(job,))
    stopping.start()
    result = auto_restart(POD, "x", str(tmp_path / "checkpoints"), check_interval=0.2, initial_job_id=job)
    stopping.join()
    assert monitor_job(POD, job, check_interval=0.1)["status"] == "STOPPED"
    assert check_job_status(POD, job, namespace="training") == "UNKNOWN", "it must not look like a failure"
    assert (result["success"], result["total_retries"]) == (False, 0)
    assert result["reason"].startswith("stopped")


@pytest.mark.nightly
def test_an_uploaded_folder_outlives_its_job_until_the_restart(
    ray_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a restart half an hour after a failure: Ray's ten minutes, and what depends on them, are a hundredth."""
    caplog.set_level(logging.INFO, "trainwarden.ray")
    grace = 6.0
    for module in (ray_jobs, monitor, restart):
        monkeypatch.setattr(module, "KEEP_SECONDS", 0.4 * grace)
    variables = {"RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S": f"{grace:.0f}"}
    with running_head(ray_python, variables) as head:
        monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as file:
            how = f'while not os.path.exists("{tmp_path}/followed"): time.sleep(0.1)\n    sys.exit(1)'
            script = TRAIN.replace("FOLDER", str(tmp_path / "checkpoints")).replace("HOW", how)
            file.writestr("train.py", script)
        packages = RayJobs(RayDashboardOverHttp(head.url, 60, token=head.token))
        for name in ("of-the-job.zip", "of-another.zip"):
            packages.upload_package(name, content.getvalue())
        job = head.submit(f"{head.python} train.py", runtime_env={"working_dir": "gcs://of-the-job.zip"})
        other = head.submit("exit 3", runtime_env={"working_dir": "gcs://of-another.zip"})

        def let_it_fail() -> None:
            wait_until(lambda: f"job {job}: None -> " in caplog.text, "it is followed")
            (tmp_path / "followed").touch()

        letting = threading.Thread(target=let_it_fail)
        letting.start()
        result = auto_restart(
            head.url, "x", str(tmp_path / "checkpoints"), max_retries=2, retry_delay=1.5 * grace, check_interval=1,
            backoff=1, initial_job_id=job,
        )  # fmt: skip
        letting.join()
        assert (result["reason"], result["total_retries"]) == ("completed", 2)
        # The same without anybody who looks.
        gone = auto_restart(head.url, "y", str(tmp_path / "checkpoints"), retry_delay=0, initial_job_id=other)
        assert gone["reason"].startswith("restart_failed: Ray has deleted package gcs://of-another.zip")


def test_with_the_address_of_the_dashboard_no_pod_is_needed(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)
    monkeypatch.setenv("TRAINWARDEN_KUBECTL", str(tmp_path / "no-kubectl"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print('step: 7 loss: 0.5', flush=True)\nimport time; time.sleep(300)\n")
    config = {
        "entrypoint": f"{head.python} train.py", "runtime_env": {"working_dir": str(tmp_path / "code")},
        "entrypoint_num_gpus": 2,
    }  # fmt: skip
    job = submit_job_with_resume(head.url, None, config)
    wait_until(lambda: get_current_step(head.url, job) == 7, lambda: get_job_logs(head.url, job))
    assert check_job_status(head.url, job) == "RUNNING"
    wait_until(lambda: verify_ray_resources(head.url)["gpus_used"] >= 2, "two are held")
    # These GPUs are Ray's alone, and none is here whose use it could show.
    gpus = check_gpu_utilization(head.url)
    assert (gpus["healthy"], gpus["gpu_count"], gpus["error"]) == (True, 0, "")
    assert "expected the name of a pod" in check_efa_utilization(head.url)["details"]
    report = get_training_health(head.url, str(tmp_path))
    assert report["ray"]["gpus_used"] >= 2
    assert report["issues"] == ["there is no GPU"]
    head.end(job)
    with pytest.raises(ValueError, match="py_modules: '/code': expected an URI"):
        submit_job_with_resume(head.url, None, {"entrypoint": "true", "runtime_env": {"py_modules": ["/code"]}})
