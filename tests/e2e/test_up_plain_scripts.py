"""`trainwarden up` around commands without the library: scripts that print their steps, or nothing, and hang or end."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.running import Up, state
from trainwarden.stack.processes import of_attempt

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(540)]

_PRINTS_STEPS = """
import pathlib, sys, time
second = pathlib.Path(sys.argv[1], "second")
for step in range(1, 30):
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    time.sleep(0.2)
if not second.exists():
    second.touch()
    time.sleep(600)
"""
_NEVER_STEPS = """
import pathlib, sys, time
print("connecting", flush=True)
while not pathlib.Path(sys.argv[1], "go").exists():
    time.sleep(0.2)
"""


def _script(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    return [sys.executable, str(folder / "script.py"), str(folder)]


def test_a_script_that_prints_steps_and_hangs_is_found_and_restarted(up: Callable[..., Up], tmp_path: Path) -> None:
    job = up("--stall-seconds", "8", "--", *_script(tmp_path, _PRINTS_STEPS))
    assert job.end() == 0, job.text[-6000:]
    assert "TrainRunStalled is firing" in job.text
    assert "Phase: train" in job.text
    assert job.step() == 29
    assert state(job) == "succeeded"


@pytest.mark.nightly
def test_a_script_that_hangs_before_its_first_step_is_found_in_the_time_that_was_asked_for(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    budgets = tmp_path / "budgets.yaml"
    budgets.write_text("stall_seconds: {train: 8}\n")
    job = up("--thresholds", str(budgets), "--", *_script(tmp_path, _NEVER_STEPS))
    job.wait(lambda: "TrainRunStalled is firing" in job.text and "Phase: load" in job.text)
    (tmp_path / "go").touch()
    assert job.end() == 0, job.text[-6000:]
    assert "restart" not in [line.split()[1] for line in job.text.splitlines() if len(line.split()) > 1]


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
    ended, alerted = job.text.index("status 7"), job.text.index("TrainRunFailed is firing")
    assert ended < alerted, "that the command ended is stated at once, not after the round through Prometheus"
    assert "Not judged: a hang before the first step" in job.text


@pytest.mark.nightly
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
