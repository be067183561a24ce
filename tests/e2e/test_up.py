"""`trainwarden up` around commands that it has never seen, stopped, killed and failing from outside."""

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


@pytest.mark.nightly  # test_up_plain_scripts.py does so without the library
def test_a_killed_training_is_restarted(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *training(tmp_path, 200))
    job.wait(lambda: job.step() > 60)
    os.kill(job.pid(), signal.SIGKILL)
    assert job.end() == 0, job.text[-6000:]
    assert len(starts(tmp_path)) == 2


@pytest.mark.nightly  # tests/slurm/test_restart.py pages as well
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
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > "$0.opened"\n')
    browser.chmod(0o755)
    job = up("--open", "--", *training(tmp_path, 10_000), BROWSER=str(browser))
    job.wait(lambda: job.step() > 10)
    os.kill(job.pid(), signal.SIGTERM)
    assert job.end() == 143, job.text[-6000:]
    lines = [line.partition("] ")[2] for line in job.text.splitlines()]
    ended = next(number for number, line in enumerate(lines) if "cancelled, " in line)
    assert any(line.startswith("run ") and " step " in line for line in lines[:ended]), job.text[-6000:]
    assert not any(line.startswith("run ") and " step " in line for line in lines[ended:]), job.text[-6000:]
    assert any("may restart it after a crash" in line for line in lines[:ended]), job.text[:6000]
    assert (tmp_path / "browser.opened").read_text().strip() == (tmp_path / "state/report.html").as_uri()
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


def test_services_that_die_are_started_again_and_a_training_that_then_stops_is_restarted_from_its_checkpoint(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    job = up("--stall-seconds", "6", "--", *training(tmp_path, 300))
    job.wait(lambda: job.step() > 10)
    for word in ("--storage.tsdb.path", "--cluster.listen", "trainwarden_exporter", "trainwarden_remediator"):
        os.kill(pid_of(word, tmp_path), signal.SIGKILL)
    job.wait(lambda: job.text.count("is started again") == 4)
    job.wait(lambda: job.step() > 60)
    os.kill(job.pid(), signal.SIGSTOP)
    assert job.end() == 0, job.text[-6000:]
    first, second = starts(tmp_path)
    assert first == 1
    assert second > 40, "it began again at its last checkpoint"
    assert state(job) == "succeeded"
    assert "TrainRunStalled is firing" in job.text


def test_whatever_kills_it_nothing_goes_on_without_it(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--", *training(tmp_path, 10_000))
    job.wait(lambda: job.step() > 5)
    job.process.kill()
    job.process.wait()
    wait_until(lambda: not commands(tmp_path), lambda: f"the end of {commands(tmp_path)}")
