"""`trainwarden up` around plain scripts that print their steps, or nothing, and hang."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.running import Up, state

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


def test_what_is_not_judged_is_stated_at_the_start(up: Callable[..., Up]) -> None:
    job = up("--policy", "observe", "--", "sh", "-c", "exit 7")
    assert job.end() == 7, job.text[-6000:]
    assert "Not judged: a hang before the first step" in job.text
