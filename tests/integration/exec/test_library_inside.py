"""A training that uses the library, under `trainwarden exec`: the record is the training's."""

import os
import subprocess
import sys

import pytest

from tests.integration.exec.running import ROOT, Exec
from tests.waiting import wait_until

TRAINING = """
import os, signal, sys, trainwarden
with trainwarden.run(total_steps=3) as run:
    for step in (1, 2, 3):
        run.step(step, loss=1.0)
    sys.stdout.write("stepped\\n")
    {end}
"""


def test_the_training_writes_its_record_and_the_wrapper_keeps_the_log(wrapped: Exec) -> None:
    assert wrapped.python(TRAINING.format(end="pass")).returncode == 0
    assert wrapped.read("_complete")["step"] == 3
    assert wrapped.read("progress.json")["step"] == 3
    metadata = wrapped.read("metadata.json")
    assert (metadata["status"], metadata["attempt"], len(metadata["attempts"])) == ("succeeded", 0, 1)
    assert wrapped.log == b"stepped\n"


def test_the_cause_that_the_training_records_stays(wrapped: Exec) -> None:
    assert wrapped.python(TRAINING.format(end="raise ValueError('its own words')")).returncode == 1
    error = wrapped.snapshot().error
    assert error is not None
    assert (error.message, error.exception_type) == ("its own words", "ValueError")


@pytest.mark.parametrize(
    ("then", "status", "state", "reason"),
    [
        ("raise OSError('the export failed')", 1, "failed", "after its training had completed"),
        ("sys.exit(5)", 5, "failed", "the command ended with status 5 after its training had completed"),
        ("os._exit(6)", 6, "failed", "the command ended with status 6 after its training had completed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "failed", "killed by signal 9 (SIGKILL) after its training"),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "cancelled", "SIGINT"),
        ("sys.exit(0)", 0, "succeeded", ""),
    ],
)
def test_a_failure_after_the_block_has_ended_well_is_the_end_of_the_run(
    wrapped: Exec, then: str, status: int, state: str, reason: str
) -> None:
    assert wrapped.python(f"{TRAINING.format(end='pass')}\n{then}").returncode == status
    snapshot = wrapped.snapshot()
    assert (snapshot.state, snapshot.completion is None) == (state, state != "succeeded")
    assert wrapped.read("metadata.json")["status"] == state
    assert reason in wrapped.read("metadata.json").get("reason", "")
    assert (snapshot.error is not None) == (state == "failed")


@pytest.mark.parametrize(("then", "state"), [("raise OSError('the export failed')", "failed"), ("pass", None)])
def test_a_failure_after_the_block_counts_on_every_rank(wrapped: Exec, then: str, state: str | None) -> None:
    ranks = {"RANK": "1", "WORLD_SIZE": "2"}
    wrapped.python(f"{TRAINING.format(end='pass')}\n{then}", environment=ranks)
    assert wrapped.snapshot().state == state
    assert wrapped.status_of_rank(1) == (state or "succeeded")


def test_a_death_without_a_record_of_its_end_is_recorded_from_outside(wrapped: Exec) -> None:
    end = "os.kill(os.getpid(), signal.SIGKILL)"
    assert wrapped.python(TRAINING.format(end=end)).returncode == 137
    snapshot = wrapped.snapshot()
    assert snapshot.error is not None
    assert (snapshot.error.failure, snapshot.error.exit_code) == ("killed", 137)
    assert wrapped.read("metadata.json")["status"] == "failed"
    assert wrapped.status_of_rank(0) == "failed"


def test_a_crash_is_recorded_with_the_trace_that_the_interpreter_left(wrapped: Exec) -> None:
    end = "import ctypes; ctypes.string_at(0)"
    assert wrapped.python(TRAINING.format(end=end)).returncode == 139
    error = wrapped.snapshot().error
    assert error is not None
    assert (error.failure, error.exit_code) == ("crash_signal", 139)
    assert error.traceback is not None
    assert "string_at" in error.traceback


def test_a_training_that_left_with_status_0_without_recording_its_end_is_never_called_a_success(wrapped: Exec) -> None:
    assert wrapped.python(TRAINING.replace("=3", "=4").format(end="sys.stdout.flush(); os._exit(0)")).returncode == 0
    assert wrapped.snapshot().state == "failed"
    assert "did not record its end" in wrapped.read("_error")["message"]


def test_a_phase_that_a_script_inside_sets_stays_until_it_sets_another(wrapped: Exec) -> None:
    command = f"{sys.executable} -m trainwarden phase compile && exec sleep 60"
    process = wrapped.start("sh", "-c", f"{command}")
    metadata = wrapped.folder / "metadata.json"
    wait_until(lambda: metadata.exists() and wrapped.read("metadata.json")["phase"] == "compile")
    assert wrapped.read("metadata.json")["status"] == "running"
    process.terminate()
    process.wait(30)
    assert wrapped.read("metadata.json")["phase"] == "compile"


def test_a_training_of_another_job_is_refused_while_the_wrapper_lives(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "echo ready; sleep 60")
    assert process.stdout is not None
    process.stdout.readline()
    other = subprocess.run(
        [sys.executable, "-c", "import trainwarden; trainwarden.run('r')"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAINWARDEN_RUNS_DIR": str(wrapped.runs)},
        capture_output=True,
        check=False,
    )
    assert b"RunRefused" in other.stderr
    assert str(process.pid).encode() in other.stderr
    process.terminate()
    process.wait(30)
