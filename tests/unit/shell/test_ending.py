"""`trainwarden fail` and `trainwarden complete`."""

import json
import signal

import pytest

from tests.cases import cases
from tests.unit.shell.calling import Shell
from trainwarden.record.store import RecordStore

pytestmark = pytest.mark.process

TRACE = """Traceback (most recent call last):
  File "train.py", line 1, in <module>
torch.OutOfMemoryError: CUDA out of memory.
"""


def test_a_failure_is_classified_by_its_message(shell: Shell) -> None:
    assert shell.call("fail", "NCCL watchdog: CUDA out of memory", "--exit-code", "1").returncode == 0
    snapshot = shell.snapshot()
    assert (snapshot.state, snapshot.metadata and snapshot.metadata.status) == ("failed", "failed")
    assert snapshot.error is not None
    assert (snapshot.error.attempt_key, snapshot.error.attempt, snapshot.error.exit_code) == ("slurm:7:0", 0, 1)
    assert snapshot.ranks[0].status == "failed"


def test_a_trace_on_standard_input_is_taken_apart(shell: Shell) -> None:
    assert shell.call("fail", "-", stdin=b"\xff junk\n" + TRACE.encode()).returncode == 0
    error = shell.snapshot().error
    assert error is not None
    assert (error.failure, error.exception_type) == ("cuda_oom", "torch.OutOfMemoryError")
    assert error.traceback == TRACE.strip()


@pytest.mark.parametrize(
    ("options", "failure"),
    [
        (("--failure", "sdc_suspect"), "sdc_suspect"),
        (("--error-type", "oom"), None),
        (("--exit-code", "93"), "launcher_stop"),
        (("--exit-code", "137"), "killed"),
        ((), "nonzero_exit"),
    ],
)
def test_the_kind_can_be_stated(shell: Shell, options: tuple[str, ...], failure: str | None) -> None:
    assert shell.call("fail", "in words that nobody knows", *options).returncode == 0
    error = shell.snapshot().error
    assert error is not None
    if failure is None:
        assert error.error_type == "oom"
    else:
        assert error.failure == failure


def test_an_exit_code_that_stands_for_a_request_to_end_is_a_cancellation(shell: Shell) -> None:
    assert shell.call("fail", "gone", "--exit-code", str(128 + signal.SIGTERM)).returncode == 0
    assert (shell.snapshot().state, shell.read("metadata.json")["reason"]) == ("cancelled", "SIGTERM")
    assert not (shell.folder / "_error").exists()


def test_an_end_for_a_restart_is_no_failure(shell: Shell) -> None:
    shell.call("heartbeat")
    RecordStore(shell.folder).announce_restart("slurm:7:0", "stalled")
    shell.call("fail", "gone", "--exit-code", "1")
    assert (shell.snapshot().state, shell.read("metadata.json")["reason"]) == ("cancelled", "restart")


def test_the_first_failure_counts_from_every_source(shell: Shell) -> None:
    shell.call("heartbeat")
    assert shell.call("fail", "of rank 3", SLURM_PROCID="3").returncode == 0
    second = shell.call("fail", "of rank 0")
    assert (second.returncode, "first failure counts" in second.stderr) == (0, True)
    assert shell.read("_error")["message"] == "of rank 3"
    assert shell.read("_error")["rank"] == 3
    assert shell.read("ranks/3.json")["status"] == "failed"


def test_a_completion_states_how_far_it_came(shell: Shell) -> None:
    shell.call("heartbeat", "--step", "60", "--total-steps", "100")
    assert shell.call("complete").returncode == 0
    assert shell.read("_complete")["step"] == 60
    metadata = shell.read("metadata.json")
    assert (metadata["status"], metadata["phase"]) == ("succeeded", "done")
    assert metadata["reason"] == "ended at step 60 of 100"
    assert shell.call("complete").returncode == 0


def test_what_has_failed_does_not_complete_and_what_is_complete_does_not_fail(shell: Shell) -> None:
    shell.call("fail", "why")
    done = shell.call("complete")
    assert (done.returncode, "why" in done.stderr, shell.snapshot().state) == (1, True, "failed")
    shell.call("complete", key="slurm:7:1")
    done = shell.call("fail", "late", key="slurm:7:1")
    assert (done.returncode, "completed before" in done.stderr, shell.snapshot().state) == (1, True, "succeeded")


def test_after_the_end_a_heartbeat_changes_nothing(shell: Shell) -> None:
    shell.call("heartbeat", "--step", "1")
    shell.call("complete")
    before = (shell.folder / "metadata.json").read_bytes()
    done = shell.call("heartbeat", "--step", "2")
    assert (done.returncode, "is over" in done.stderr) == (0, True)
    assert (shell.folder / "metadata.json").read_bytes() == before


def test_a_late_failure_of_an_older_attempt_does_not_stain_the_newer(shell: Shell) -> None:
    shell.call("heartbeat", key="slurm:7:0")
    shell.call("heartbeat", key="slurm:7:1")
    assert shell.call("fail", "late", key="slurm:7:0").returncode == 1
    assert shell.snapshot().state == "running"
    assert json.loads((shell.folder / "_error.0").read_text())["message"] == "late"


def test_a_new_attempt_puts_the_old_ends_aside(shell: Shell) -> None:
    shell.call("fail", "why")
    shell.call("heartbeat", key="slurm:7:1")
    assert shell.snapshot().state == "running"
    assert json.loads((shell.folder / "_error.0").read_text())["message"] == "why"


@cases(
    "arguments",
    [
        ("fail",),
        ("fail", "a", "b"),
        ("fail", "a", "--failure", "nope"),
        ("fail", "a", "--error-type", "nope"),
        ("fail", "a", "--failure", "killed", "--error-type", "oom"),
        ("fail", "a", "--exit-code", "x"),
        ("complete", "now"),
        ("complete", "--step", "x"),
    ],
)
def test_misuse_is_status_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell.call(*arguments).returncode == 2
    assert not shell.runs.exists()


def test_an_end_that_cannot_be_recorded_is_status_1(shell: Shell) -> None:
    shell.runs.write_text("a file in its place")
    assert [shell.call(*command).returncode for command in (("fail", "why"), ("complete",))] == [1, 1]


def test_help_shows_what_each_does(shell: Shell) -> None:
    for command in ("heartbeat", "phase", "fail", "complete", "keep", "shell-init"):
        done = shell.call(command, "--help")
        assert (done.returncode, done.stdout.startswith("usage: ")) == (0, True)
