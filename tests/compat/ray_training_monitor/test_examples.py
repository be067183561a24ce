"""The three whole examples, as scripts of users with another import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.ray_training_monitor.conftest import POD, PROGRAMS, Pod, Script, unique, write_checkpoint
from tests.ray.head import Head
from trainwarden.ray import get_job_logs

pytestmark = pytest.mark.ray
TITLE = "Training Monitor Skill"


def printed(text: str) -> list[str]:
    """What the script itself printed, without the log."""
    return [line for line in text.splitlines() if " - trainwarden.ray - " not in line]


@pytest.mark.seed(TITLE, "Example 1: Full Training Pipeline")
def test_example_1_restarts_a_failing_training_from_its_checkpoints_until_it_is_complete(
    pod: Pod, head: Head, script: Script, tmp_path: Path
) -> None:
    name, checkpoints = unique("grpo-training"), tmp_path / "checkpoints"
    train = f"{head.python} {PROGRAMS}/train.py {checkpoints} 9 fails"
    head.submit(train, metadata={"job_name": name}, entrypoint_num_gpus=1)
    ran = script("full_training_pipeline.py", POD, name, str(checkpoints))
    assert ran.status == 0
    assert ran.out == "Training completed at step 9 after 2 retries\n", "the log goes where the script's own goes"
    assert "restart 1 of 10" in ran.err
    listed = head.call("/api/jobs/")
    newest = next(job for job in listed if job["metadata"] and job["metadata"].get("trainwarden_retries") == "2"
                  and job["metadata"].get("job_name") == name)  # fmt: skip
    logs = get_job_logs(POD, newest["submission_id"])
    assert f"['--resume_from_checkpoint', '{checkpoints}/step_6']" in logs


@pytest.mark.seed(TITLE, "Example 1: Full Training Pipeline")
def test_example_1_says_why_it_gave_up(pod: Pod, script: Script, failed_job: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    ran = script("full_training_pipeline.py", POD, failed_job, str(tmp_path / "checkpoints"))
    assert ran.status == 1
    assert ran.out == "Training failed after 0 retries: no_checkpoint_found\n"


@pytest.mark.seed(TITLE, "Example 2: Background Monitoring")
def test_example_2_monitors_a_job_in_a_thread(pod: Pod, script: Script, failed_job: str) -> None:
    ran = script("background_monitoring.py", POD, failed_job)
    assert (ran.status, ran.err) == (0, "")
    assert printed(ran.out) == [f"Job {failed_job} finished with status: FAILED"]


@pytest.mark.seed(TITLE, "Example 3: Custom Restart Logic")
def test_example_3_restarts_by_a_loop_of_ones_own(
    pod: Pod, head: Head, script: Script, failed_job: str, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    write_checkpoint(checkpoints / "step_3")
    entrypoint = f"{head.python} {PROGRAMS}/train.py {checkpoints} 6 fails --resume"
    ran = script("custom_restart_logic.py", POD, failed_job, str(checkpoints), entrypoint)
    assert (ran.status, ran.err) == (0, "")
    first, done, last = printed(ran.out)
    assert (first, done) == ("Job failed, attempt 1/5", "Training completed successfully!")
    logs = get_job_logs(POD, last.removeprefix("Last job: "))
    assert f"arguments ['--resume'] resume {checkpoints}/step_3\n" in logs, "its own flag stays, and no other comes"
