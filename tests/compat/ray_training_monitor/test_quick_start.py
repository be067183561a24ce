"""The first calls of a user of the Ray training monitor, on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.ray_training_monitor.conftest import (
    EFA,
    POD,
    WORKER,
    Moving,
    Pod,
    Script,
    unique,
    write_checkpoint,
)
from tests.ray.head import GPUS, Head
from tests.waiting import wait_until
from trainwarden.ray import (
    auto_restart,
    check_job_status,
    detect_stall,
    get_current_step,
    get_job_logs,
    get_training_health,
    monitor_job,
    submit_job_with_resume,
    verify_ray_resources,
)

pytestmark = pytest.mark.ray
TITLE = "Training Monitor Skill"


@pytest.mark.seed(TITLE, "Full Training Health Report")
def test_full_training_health_report(pod: Pod, standing_job: str, script: Script, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    for step in (100, 500):
        write_checkpoint(checkpoints / f"step_{step}")
    pod.log(standing_job, EFA)
    wait_until(lambda: verify_ray_resources(POD)["gpus_used"] >= 1, "Ray counts the GPU")
    ran = script("health_report.py", POD, str(checkpoints), POD, WORKER)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "training health: HEALTHY"
    assert lines[-5:] == [
        "Healthy: True", "GPU avg: 94%", "EFA: ofi (EFA)", "Latest checkpoint: step 500", "Issues: []",
    ]  # fmt: skip


@pytest.mark.seed(TITLE, "Full Training Health Report")
def test_full_training_health_report_has_each_part(pod: Pod, standing_job: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoints/step_40")
    pod.log(standing_job, EFA)
    report = get_training_health(head_pod=POD, checkpoint_dir=str(tmp_path / "checkpoints"))
    assert report["gpu"]["total_gpus"] == 2
    assert report["gpu"]["per_node"][0] == {"pod": POD, "util": 97, "mem_used": 60000, "mem_total": 81920}
    assert report["efa"] == {"active": True, "transport": "ofi (EFA)", "channels": "1 channels"}
    found = report["checkpoints"]
    assert (found["latest_step"], found["checkpoint_count"]) == (40, 1)
    assert (report["ray"]["gpus_available"], report["ray"]["cpus_available"]) == (GPUS, 4)


@pytest.mark.seed(TITLE, "Full Training Health Report")
def test_full_training_health_report_of_what_cannot_be_read(pod: Pod, standing_job: str) -> None:
    report = get_training_health(
        head_pod=POD, checkpoint_dir="/no/such/folder", all_pods=[POD, "training-worker-that-is-gone"]
    )
    assert report["healthy"] is False
    assert [node["pod"] for node in report["gpu"]["per_node"]] == [POD, POD]
    for part in ("training-worker-that-is-gone cannot be read", "/no/such/folder cannot be read"):
        assert any(part in issue for issue in report["issues"])


@pytest.mark.seed(TITLE, "Basic Auto-Restart")
def test_basic_auto_restart_of_a_job_that_succeeds(pod: Pod, head: Head, tmp_path: Path) -> None:
    name = unique("my-training")
    head.submit("echo step: 5 loss: 0.1", metadata={"job_name": name})
    result = auto_restart(
        head_pod=POD,
        job_name=name,
        checkpoint_dir=str(tmp_path),
        max_retries=10,
        retry_delay=60,
        check_interval=1,
    )
    found = (result["success"], result["final_step"], result["total_retries"], result["reason"])
    assert found == (True, 5, 0, "completed")


@pytest.mark.seed(TITLE, "Monitor a Specific Job")
def test_monitor_a_specific_job_to_its_end(pod: Pod, failed_job: str) -> None:
    result = monitor_job(head_pod=POD, job_id=failed_job, check_interval=30)
    assert (result["status"], result["final_step"]) == ("FAILED", 3)
    assert result["duration"] >= 0


@pytest.mark.seed(TITLE, "Monitor a Specific Job")
def test_monitor_a_specific_job_until_a_timeout(pod: Pod, standing_job: str) -> None:
    assert monitor_job(POD, standing_job, check_interval=0.1, timeout=1)["status"] == "TIMEOUT"


@pytest.mark.seed(TITLE, "Check Job Status")
def test_check_job_status_in_each_of_the_five(pod: Pod, head: Head, standing_job: str, failed_job: str) -> None:
    waits = head.submit("true", submission_id=unique("waits"), entrypoint_resources={unique("no-such"): 1})
    done = head.submit("true", submission_id=unique("done"))
    jobs = {
        "RUNNING": standing_job, "FAILED": failed_job, "SUCCEEDED": done, "PENDING": waits,
        "UNKNOWN": "raysubmit_nothing",
    }  # fmt: skip
    wait_until(lambda: head.state(done) == "SUCCEEDED", "it succeeds")
    # Ray cannot end the one that waits: it stays.
    assert {status: check_job_status(POD, job) for status, job in jobs.items()} == {status: status for status in jobs}
    assert check_job_status("another-pod", failed_job) == "UNKNOWN"


@pytest.mark.seed(TITLE, "Get Current Training Step")
@pytest.mark.parametrize("place", ["the pod", "the API"])
def test_get_current_training_step(pod: Pod, failed_job: str, place: str) -> None:
    if place == "the pod":
        pod.log(failed_job, "loading\nstep: 41 loss: 0.6\nstep: 42 loss: 0.5\n")
    assert get_current_step(POD, failed_job) == (42 if place == "the pod" else 3)
    assert get_job_logs(POD, failed_job, tail=1).count("\n") == 1


@pytest.mark.seed(TITLE, "Detect Stalled Jobs")
def test_detect_stalled_jobs_by_their_step_and_not_by_their_output(
    pod: Pod, head: Head, standing_job: str, moving_job: Moving
) -> None:
    assert detect_stall(head_pod=POD, job_id=standing_job, stagnation_threshold=2) is True
    assert detect_stall(head_pod=POD, job_id=moving_job.job, stagnation_threshold=2) is False
    assert detect_stall("another-pod", standing_job, stagnation_threshold=0.1) is False, "no answer is no stall"
    stalls: list[str] = []
    result = monitor_job(POD, standing_job, 0.2, stagnation_threshold=1, on_stall=lambda: stalls.append("stalled"))
    assert (result["status"], result["final_step"], stalls) == ("STALLED", 7, ["stalled"])
    moving_job.last.touch()
    assert monitor_job(POD, moving_job.job, check_interval=0.2)["status"] == "SUCCEEDED"
    assert detect_stall(POD, moving_job.job, stagnation_threshold=0.1) is False, "it has ended"


@pytest.mark.seed(TITLE, "Submit Job with Resume")
def test_submit_job_with_resume(pod: Pod, head: Head, tmp_path: Path) -> None:
    """With a working directory that is a path in the pod."""
    app = tmp_path / "app"
    app.mkdir()
    (app / "train.py").write_text("import os, sys\nprint(sys.argv[1:], os.environ['TRAINWARDEN_RESUME_CHECKPOINT'])\n")
    checkpoint = "/checkpoints/GRPO/my-training/step_1000"
    job_id = submit_job_with_resume(
        head_pod=POD,
        checkpoint_path=checkpoint,
        config={"entrypoint": "python train.py", "runtime_env": {"working_dir": str(app)}},
    )
    assert job_id.startswith("raysubmit_")
    assert monitor_job(POD, job_id, check_interval=0.2)["status"] == "SUCCEEDED"
    assert f"['--resume_from_checkpoint', '{checkpoint}'] {checkpoint}\n" in get_job_logs(POD, job_id)


@pytest.mark.seed(TITLE, "Submit Job with Resume")
def test_submit_job_with_resume_that_cannot_be_submitted_is_an_error(pod: Pod) -> None:
    with pytest.raises(RuntimeError, match=r"not submitted|unknown"):
        submit_job_with_resume("another-pod", "/checkpoints/step_1000", {"entrypoint": "true"})
    with pytest.raises(ValueError, match="there is no key 'entrypiont', expected one of"):
        submit_job_with_resume(POD, "/checkpoints/step_1000", {"entrypiont": "true"})


@pytest.mark.seed(TITLE, "Quick Start")
def test_the_short_calls_as_one_script(pod: Pod, script: Script, failed_job: str) -> None:
    ran = script("checks.py", POD, failed_job)
    assert (ran.status, ran.err) == (0, "")
    lines = [line for line in ran.out.splitlines() if " - trainwarden.ray - " not in line]
    assert lines == ["Job status: FAILED", "Current step: 3", "Stalled: False", "Ended: FAILED 3 True"]
