"""`trainwarden up` around commands that it has never seen, stopped, killed and failing from outside."""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.running import Up, commands, pid_of, starts, state, training
from tests.waiting import wait_until
from trainwarden.stack.processes import of_attempt

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(540)]


def test_a_stopped_training_is_restarted_from_its_checkpoint_and_finishes(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--stall-seconds", "6", "--", *training(tmp_path, 400))
    job.wait(lambda: job.step() > 60)
    os.kill(job.pid(), signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    first, second = starts(tmp_path)
    assert first == 1
    assert second > 40, "it began again at its last checkpoint"
    assert state(job) == "succeeded"
    assert "TrainRunStalled is firing" in job.text


def test_a_killed_training_is_restarted(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *training(tmp_path, 400))
    job.wait(lambda: job.step() > 60)
    os.kill(job.pid(), signal.SIGKILL)
    assert job.end() == 0, job.text[-6000:]
    assert len(starts(tmp_path)) == 2


def test_a_limit_of_restarts_is_exact_and_then_a_person_is_paged(up: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    policy = tmp_path / "twice.yaml"
    policy.write_text(
        "policies:\n  - mode: crash\n    implementation: {class_name: AlwaysRestartPolicy, max_retries: 2}\n"
    )
    job = up("--policy", str(policy), "--", *training(tmp_path, 400))
    assert job.end() == 1, job.text[-6000:]
    assert len(starts(tmp_path)) == 3
    assert "[FIRING] TrainRunRestartExhausted" in job.text, job.text[-6000:]


def test_a_training_that_gets_sigterm_stays_ended(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 10)
    os.kill(job.pid(), signal.SIGTERM)
    assert job.end() == 143, job.text[-6000:]
    assert starts(tmp_path) == [1]
    assert state(job) == "cancelled"


def test_ctrl_c_ends_everything_and_leaves_no_process_and_no_file_elsewhere(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--", *training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 10)
    key = json.loads((job.run / "metadata.json").read_text())["attempt_key"]
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130, job.text[-6000:]
    assert of_attempt(key) == []
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("step_")) == [
        "output-r1",
        "starts",
        "state",
        "train.py",
    ]


def test_a_command_without_the_library_is_watched_too(up: Callable[..., Up], tmp_path: Path) -> None:
    flag = tmp_path / "second"
    script = f"echo working; if [ -e {flag} ]; then exit 0; fi; touch {flag}; sleep 1; kill -9 $$"
    job = up("--", "sh", "-c", script)
    assert job.end() == 0, job.text[-6000:]
    assert "working" in job.text
    assert state(job) == "succeeded"


def test_a_failing_command_ends_with_its_own_status_and_is_not_restarted_where_the_policy_forbids_it(
    up: Callable[..., Up],
) -> None:
    job = up("--policy", "observe", "--", "sh", "-c", "exit 7")
    assert job.end() == 7, job.text[-6000:]
    assert "TrainRunFailed" in job.text


def test_a_stopped_command_without_the_library_is_found_by_its_silence(up: Callable[..., Up], tmp_path: Path) -> None:
    flag = tmp_path / "second"
    script = f"echo $$ > {tmp_path / 'pid'}; if [ -e {flag} ]; then exit 0; fi; touch {flag}; while :; do sleep 1; done"
    job = up("--stale-seconds", "12", "--", "sh", "-c", script)
    job.wait(lambda: flag.exists() and state(job) == "running")
    for process in of_attempt(json.loads((job.run / "metadata.json").read_text())["attempt_key"]):
        with contextlib.suppress(ProcessLookupError):  # a `sleep` that has ended meanwhile
            os.kill(process.pid, signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    assert "TrainRunTimedOut is firing" in job.text


def test_a_service_that_dies_is_started_again_and_the_run_is_still_watched(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--stall-seconds", "10", "--", *training(tmp_path, 500))
    job.wait(lambda: job.step() > 10)
    for word in ("--storage.tsdb.path", "--cluster.listen", "trainwarden_exporter", "trainwarden_remediator"):
        os.kill(pid_of(word, tmp_path), signal.SIGKILL)
    job.wait(lambda: job.text.count("is started again") == 4)
    os.kill(job.pid(), signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    assert len(starts(tmp_path)) == 2


def test_whatever_kills_it_nothing_goes_on_without_it(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 5)
    job.process.kill()
    job.process.wait()
    wait_until(lambda: not commands(tmp_path), lambda: f"the end of {commands(tmp_path)}")
