"""`trainwarden fail` of an attempt that runs and of whose end nobody has said anything: it is recorded in one go."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.shell.calling import KEY, Shell
from trainwarden.shell import fail

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
TRACE = """Traceback (most recent call last):
  File "train.py", line 1, in <module>
RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.
"""
# What tells of the moment, and which way it was recorded makes no difference to.
_MOMENTS = {"time", "last_update", "end_time", "start_time", "attempt_start_time", "phase_time", "attempts", "phase"}


def _lasting(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in _MOMENTS}


@pytest.mark.parametrize(
    "arguments",
    [
        ("why",),
        ("why", "--failure", "sdc_suspect"),
        ("why", "--exit-code", "137"),
        ("CUDA out of memory", "--exit-code", "1"),
        (TRACE,),
        ("x" * 10_000,),
    ],
)
def test_a_failure_is_recorded_alike_with_and_without_a_heartbeat_before_it(
    shell: Shell, arguments: tuple[str, ...]
) -> None:
    names = ("_error", "metadata.json", "ranks/0.json")
    assert shell.call("fail", *arguments).returncode == 0
    without = [_lasting(shell.read(name)) for name in names]
    for name in names:
        (shell.folder / name).unlink()
    assert shell.call("heartbeat").returncode == 0
    assert shell.call("fail", *arguments).returncode == 0
    after = [_lasting(shell.read(name)) for name in names]
    assert after[:2] == without[:2]
    assert after[2]["status"] == without[2]["status"] == "failed"
    assert shell.read("metadata.json")["end_time"] == shell.read("metadata.json")["last_update"]
    assert shell.snapshot().state == "failed"


def test_the_record_of_a_failure_names_the_instance(shell: Shell) -> None:
    assert shell.call("fail", "why", TRAINWARDEN_INSTANCE_ID="i-01fa5b57d64c6196a").returncode == 0
    assert shell.read("metadata.json")["instance_id"] == "i-01fa5b57d64c6196a"


def test_no_links_and_no_other_process_stand_in_the_way(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.call("heartbeat")
    variables = {"TRAINWARDEN_RUNS_DIR": str(shell.runs), "TRAINWARDEN_RUN_ID": "r", "TRAINWARDEN_ATTEMPT_KEY": KEY}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def refuse(_source: object, _target: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert fail.main(["why"]) == 0
    assert (shell.read("_error")["message"], shell.snapshot().state) == ("why", "failed")
    assert list(shell.folder.glob(".*.tmp")) == []


@pytest.mark.parametrize("arguments", [("why",), ("CUDA out of memory",), ("why", "--failure", "killed"), (TRACE,)])
def test_it_loads_next_to_nothing(shell: Shell, arguments: tuple[str, ...]) -> None:
    """Of a script's end it is the last word, and whoever ends it may wait no longer."""
    shell.call("heartbeat")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from trainwarden.cli import main\n"
    code += f"status = main(['fail', *{arguments!r}, '--run-id', 'r']); print(' '.join(sys.modules)); sys.exit(status)"
    environment = {**shell.environment, "TRAINWARDEN_ATTEMPT_KEY": KEY}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    slow = {"argparse", "dataclasses", "typing", "pathlib", "datetime", "logging", "importlib.metadata", "inspect"}
    assert loaded & {*slow, "contextlib", "subprocess", "threading", "tempfile", "traceback", "signal"} == set()
    assert "trainwarden.record.attempt" not in loaded
    assert shell.snapshot().state == "failed"


def test_a_misspelt_failure_is_answered_with_the_nearest_and_not_with_all(shell: Shell) -> None:
    done = shell.call("fail", "why", "--failure", "cuda-omm")
    assert done.returncode == 2
    assert "expected cuda_oom or" in done.stderr and "storage_missing" not in done.stderr
    done = shell.call("fail", "why", "--failure", "nope")
    assert done.returncode == 2 and len(done.stderr) < 300


@pytest.mark.parametrize("lines", ['Traceback (most recent call last):\n  File "t.py", line 1\n', ""])
def test_a_missing_file_is_one_in_a_traceback_too(shell: Shell, lines: str) -> None:
    shell.call("fail", f"{lines}FileNotFoundError: [Errno 2] No such file or directory: '/nope'")
    assert shell.read("_error")["failure"] == "storage_missing"


def test_the_traceback_of_an_interrupt_is_a_run_that_was_cancelled(shell: Shell) -> None:
    trace = 'Traceback (most recent call last):\n  File "t.py", line 1\nKeyboardInterrupt'
    assert shell.call("fail", trace).returncode == 0
    assert shell.read("metadata.json")["status"] == "cancelled"
