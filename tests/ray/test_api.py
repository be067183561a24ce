"""`trainwarden.ray` with a real head: the calls of a script for the Ray training monitor, with another import."""

from __future__ import annotations

import io
import logging
import re
import threading
import zipfile
from pathlib import Path

import pytest

from tests.ray.head import GPUS, Head, running_head
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
    detect_stall,
    find_latest_checkpoint,
    get_current_step,
    get_job_logs,
    get_training_health,
    jobs,
    monitor,
    monitor_job,
    print_training_health,
    restart,
    submit_job_with_resume,
    verify_ray_resources,
)

pytestmark = pytest.mark.ray

POD = "head-pod"
SMI = """#!/bin/sh
case "$1" in
*gpu=*) echo '97, 60000, 81920'; echo '91, 61000, 81920' ;;
*apps=*) echo '4711, /usr/bin/python3, a, b, NVIDIA H100, 60000 MiB' ;;
esac
"""
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
def pod(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The head as a pod that kubectl reaches; the folder of its programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(SMI)
    (programs / "nvidia-smi").chmod(0o755)
    inside = {**head.environment, "PATH": f"{programs}:{head.environment['PATH']}"}
    monkeypatch.setenv("TRAINWARDEN_KUBECTL", str(write_kubectl(tmp_path / "kubectl", inside)))
    monkeypatch.setenv("TRAINWARDEN_RAY_DASHBOARD", head.url)
    monkeypatch.setattr(jobs, "SESSION_LOGS", str(head.folder / "ray/session_latest/logs"))
    monkeypatch.setattr(monitor, "_known", {})
    return programs


def train(head: Head, folder: Path, how: str, **fields: object) -> str:
    script = folder / "train.py"
    script.write_text(TRAIN.replace("FOLDER", str(folder / "checkpoints")).replace("HOW", how))
    return head.submit(f"{head.python} {script}", **fields)


def test_the_five_statuses(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    running = head.submit("sleep 300", entrypoint_num_gpus=GPUS)
    wait_until(lambda: head.state(running) == "RUNNING", "it has all GPUs")
    submitted = {
        "RUNNING": running, "FAILED": head.submit("exit 3"), "SUCCEEDED": head.submit("true"),
        "PENDING": head.submit("true", entrypoint_num_gpus=1), "UNKNOWN": "raysubmit_nothing",
    }  # fmt: skip
    wait_until(lambda: {check_job_status(POD, job) for job in submitted.values()} == submitted.keys(), "each its own")
    assert {name: check_job_status(POD, job) for name, job in submitted.items()} == {name: name for name in submitted}
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)
    assert check_job_status(head.url, submitted["FAILED"]) == "FAILED"
    assert check_job_status(POD, submitted["FAILED"], namespace="training") == "FAILED"
    assert check_job_status(POD, submitted["FAILED"], namespace="elsewhere") == "UNKNOWN"
    assert check_job_status("another-pod", submitted["FAILED"]) == "UNKNOWN"
    head.end(running)
    assert monitor_job(POD, submitted["PENDING"], check_interval=0.2)["status"] == "SUCCEEDED"


def test_step_and_log_of_a_job(head: Head, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = head.submit(
        "for n in 1 2 3; do echo step: $n loss: 0.5; done; echo 'validation: 900 rows' # step: 99 loss: 1"
    )
    result = monitor_job(POD, job, check_interval=0.2)
    assert (result["status"], result["final_step"], result["job_id"]) == ("SUCCEEDED", 3, job)
    assert get_current_step(POD, job) == 3
    assert "\nvalidation: 900 rows\n" in get_job_logs(POD, job)
    assert get_job_logs(POD, job, tail=1).count("\n") == 1
    monkeypatch.setattr(jobs, "SESSION_LOGS", str(tmp_path))  # not in this pod: by the API
    assert get_current_step(POD, job) == 3
    assert get_current_step(POD, "raysubmit_nothing") is None


def test_a_job_that_goes_on_times_out_and_one_that_somebody_stops_is_stopped(head: Head) -> None:
    job = head.submit("sleep 300")
    assert monitor_job(POD, job, check_interval=0.1, timeout=1)["status"] == "TIMEOUT"
    head.end(job)
    assert monitor_job(POD, job, check_interval=0.1)["status"] == "STOPPED"
    assert monitor_job(POD, "raysubmit_nothing", check_interval=0.1)["status"] == "UNKNOWN"


def test_a_job_stalls_when_its_step_stands_still_and_only_then(head: Head) -> None:
    stands = head.submit("echo step: 7 loss: 0.5; while true; do echo still here; sleep 0.2; done")
    moves = head.submit("n=0; while true; do n=$((n+1)); echo step: $n loss: 0.5; sleep 0.2; done")
    wait_until(lambda: get_current_step(POD, stands) and get_current_step(POD, moves), "both have begun")
    assert detect_stall(POD, stands, stagnation_threshold=2) is True
    assert detect_stall(POD, moves, stagnation_threshold=2) is False
    assert detect_stall("another-pod", stands, stagnation_threshold=0.1) is False
    called: list[str] = []
    result = monitor_job(POD, stands, 0.2, stagnation_threshold=1, on_stall=lambda: called.append("stalled"))
    assert (result["status"], called) == ("STALLED", ["stalled"])
    head.end(stands)
    head.end(moves)
    assert detect_stall(POD, stands, stagnation_threshold=0.1) is False


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
    with pytest.raises(ValueError, match="there is no key 'entrypiont', expected one of"):
        submit_job_with_resume(POD, None, {"entrypiont": "true"})
    with pytest.raises(RuntimeError, match=r"not submitted|unknown"):
        submit_job_with_resume("another-pod", None, {"entrypoint": "true"})


def test_a_failing_job_comes_back_from_its_newest_checkpoint_until_it_arrives(head: Head, tmp_path: Path) -> None:
    job = train(head, tmp_path, "sys.exit(1)", metadata={"job_name": "grpo"}, entrypoint_num_gpus=1)
    result = auto_restart(
        head_pod=POD, job_name="grpo", checkpoint_dir=str(tmp_path / "checkpoints"), max_retries=10, retry_delay=0,
        check_interval=1,
    )  # fmt: skip
    assert (result["success"], result["reason"], result["total_retries"]) == (True, "completed", 2)
    assert result["final_step"] == 9
    printed = get_job_logs(POD, result["job_id"])
    assert f"['--resume_from_checkpoint', '{tmp_path}/checkpoints/global_step_6']" in printed
    assert result["job_id"] != job
    restarted = head.call(f"/api/jobs/{result['job_id']}")
    assert restarted["metadata"]["job_name"] == "grpo"


def test_a_job_that_stalls_is_ended_before_the_next_begins_and_retries_have_an_end(head: Head, tmp_path: Path) -> None:
    job = train(head, tmp_path, "time.sleep(300)", submission_id="stalls")
    result = auto_restart(
        POD, "stalls", str(tmp_path / "checkpoints"), max_retries=1, retry_delay=0, stagnation_threshold=2,
        check_interval=0.3,
    )  # fmt: skip
    assert (result["success"], result["total_retries"]) == (False, 1)
    assert result["reason"] == "max_retries_reached after STALLED"
    assert head.state(job) == "STOPPED"
    assert get_current_step(POD, result["job_id"]) == 6
    head.end(result["job_id"])


def test_a_job_that_somebody_stops_is_not_started_again(head: Head, tmp_path: Path) -> None:
    job = train(head, tmp_path, "time.sleep(300)")
    wait_until(lambda: get_current_step(POD, job) == 3, "it works")
    stopping = threading.Thread(target=head.end, args=(job,))
    stopping.start()
    result = auto_restart(POD, "x", str(tmp_path / "checkpoints"), check_interval=0.2, initial_job_id=job)
    stopping.join()
    assert (result["success"], result["total_retries"]) == (False, 0)
    assert result["reason"].startswith("stopped")


def test_without_a_checkpoint_it_gives_up_and_an_unknown_name_is_an_error(head: Head, tmp_path: Path) -> None:
    result = auto_restart(
        POD, "fails", str(tmp_path), retry_delay=0, check_interval=0.2, job_config={"entrypoint": "exit 1"}
    )
    assert (result["reason"], result["total_retries"]) == ("no_checkpoint_found", 0)
    with pytest.raises(ValueError, match="'no-such-job': no job has this id"):
        auto_restart(POD, "no-such-job", str(tmp_path))


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


def test_checkpoints_are_verified_in_the_pod(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import numpy as np

    for step in (500, 1000):
        (tmp_path / f"step_{step}").mkdir()
        np.savez(tmp_path / f"step_{step}/model.npz", weights=np.zeros(100))
    damaged = tmp_path / "step_1000/model.npz"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert find_latest_checkpoint(str(tmp_path), POD) == f"{tmp_path}/step_500"
    assert find_latest_checkpoint(str(tmp_path)) == f"{tmp_path}/step_500"
    assert find_latest_checkpoint(str(tmp_path / "empty"), POD) is None


def test_a_job_without_gpus_beside_free_ones_is_named(head: Head) -> None:
    job = head.submit("sleep 300")
    wait_until(lambda: head.state(job) == "RUNNING", "it runs")
    wait_until(lambda: verify_ray_resources(POD)["gpus_used"] == 0, "those before it are gone")
    found = verify_ray_resources(POD)
    assert (found["healthy"], found["gpus_available"], found["cpus_available"]) == (True, GPUS, 4)
    assert "no GPU is allocated" in found["warning"]
    head.end(job)
    holding = head.submit("sleep 300", entrypoint_num_gpus=2)
    wait_until(lambda: verify_ray_resources(POD)["gpus_used"] == 2, "two are held")
    assert verify_ray_resources(POD)["warning"] == ""
    head.end(holding)
    assert verify_ray_resources("another-pod")["healthy"] is False


def test_one_report_on_a_training(
    head: Head, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "global_step_40").mkdir()
    (tmp_path / "global_step_40/model.npz").write_bytes(b"x")
    origin = "node-1:22:31 [3] NCCL INFO"
    lines = [f"{origin} NET/OFI Selected Provider is efa", f"{origin} Channel 00/0 : 7[7] -> 8[0] via NET/OFI/0"]
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "worker-1.out").write_text("\n".join(lines))
    monkeypatch.setattr(jobs, "SESSION_LOGS", str(logs))
    job = head.submit("sleep 300", entrypoint_num_gpus=1)
    wait_until(lambda: verify_ray_resources(POD)["gpus_used"] == 1, "one is held")
    report = get_training_health(head_pod=POD, checkpoint_dir=str(tmp_path), all_pods=[POD])
    assert report["issues"] == []
    assert report["healthy"] is True
    assert report["gpu"]["avg_utilization"] == 94
    assert report["gpu"]["per_node"][0] == {"pod": POD, "util": 97, "mem_used": 60000, "mem_total": 81920}
    assert report["efa"] == {"active": True, "transport": "ofi (EFA)", "channels": "1 channels"}
    assert report["checkpoints"]["latest_step"] == 40
    assert report["ray"] == {"gpus_used": 1, "gpus_available": 4, "cpus_used": 0, "cpus_available": 4}
    print_training_health(report)
    assert "HEALTHY" in capsys.readouterr().out.splitlines()[0]
    head.end(job)
    worse = get_training_health(POD, str(tmp_path / "nowhere"), [POD, "another-pod"])
    assert worse["healthy"] is False
    assert any("another-pod cannot be read" in issue for issue in worse["issues"])
    assert any("nowhere cannot be read" in issue for issue in worse["issues"])


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
    wait_until(lambda: verify_ray_resources(head.url)["gpus_used"] == 2, "two are held")
    # These GPUs are Ray's alone, and none is here whose use it could show.
    gpus = check_gpu_utilization(head.url)
    assert (gpus["healthy"], gpus["gpu_count"], gpus["error"]) == (True, 0, "")
    assert "expected the name of a pod" in check_efa_utilization(head.url)["details"]
    report = get_training_health(head.url, str(tmp_path))
    assert report["ray"]["gpus_used"] == 2
    assert report["issues"] == ["there is no GPU"]
    head.end(job)
    with pytest.raises(ValueError, match="py_modules: '/code': expected an URI"):
        submit_job_with_resume(head.url, None, {"entrypoint": "true", "runtime_env": {"py_modules": ["/code"]}})


def test_the_log_goes_where_the_variables_say(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("trainwarden.ray")
    kept, propagate = list(logger.handlers), logger.propagate
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setenv("TRAINING_MONITOR_LOG_FILE", str(tmp_path / "monitor.log"))
    monkeypatch.setenv("TRAINING_MONITOR_LOG_LEVEL", "ERROR")
    assert check_job_status(POD, "raysubmit_nothing") == "UNKNOWN"
    assert "raysubmit_nothing: Ray has no such job" in (tmp_path / "monitor.log").read_text()
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.propagate = kept, propagate
