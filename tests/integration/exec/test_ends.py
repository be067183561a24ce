"""How a command under `trainwarden exec` ends, for whoever started it and in the record."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.integration.exec.running import Exec
from tests.waiting import wait_until
from trainwarden.record.store import RecordStore


def test_a_command_that_ends_well_has_succeeded_and_all_of_its_record_shows_it(wrapped: Exec) -> None:
    assert wrapped.run("true").returncode == 0
    snapshot = wrapped.snapshot()
    assert snapshot.metadata is not None
    assert (snapshot.state, snapshot.metadata.phase, snapshot.metadata.attempt) == ("succeeded", "done", 0)
    assert snapshot.metadata.end_time is not None
    assert [(beat.rank, beat.status) for beat in snapshot.ranks] == [(0, "succeeded")]
    assert snapshot.metadata.attempt_key == wrapped.read("_complete")["attempt_key"]


@pytest.mark.parametrize(
    ("script", "status", "failure"),
    [
        ("exit 3", 3, "nonzero_exit"),
        ("exit 93", 93, "launcher_stop"),
        ("exit 16", 16, "rerun_to_disambiguate"),
        ("exit 17", 17, "sdc_suspect"),
        ("kill -9 $$", 137, "killed"),
        ("kill -SEGV $$", 139, "crash_signal"),
        ("kill -ABRT $$", 134, "crash_signal"),
    ],
)
def test_a_failure_keeps_its_status_and_leaves_an_error(wrapped: Exec, script: str, status: int, failure: str) -> None:
    assert wrapped.run("sh", "-c", script).returncode == status
    error = wrapped.snapshot().error
    assert error is not None
    assert (error.failure, error.exit_code) == (failure, status)
    assert wrapped.read("metadata.json")["status"] == "failed"


def test_a_command_that_is_not_there_is_127_and_one_that_cannot_be_run_126(wrapped: Exec, tmp_path: Path) -> None:
    done = wrapped.run("no-such-command-here")
    assert (done.returncode, b"'no-such-command-here'" in done.stderr) == (127, True)
    assert wrapped.read("_error")["failure"] == "config_error"
    (tmp_path / "script").write_text("")
    assert wrapped.run(str(tmp_path / "script")).returncode == 126
    assert wrapped.snapshot().state == "failed"
    assert wrapped.read("metadata.json")["attempt"] == 1


def test_a_command_that_is_not_there_is_127_also_where_folders_of_path_cannot_be_read(
    wrapped: Exec, tmp_path: Path
) -> None:
    # Root may read the first of them; the second refuses root as well.
    closed, loop, tools = tmp_path / "closed", tmp_path / "loop", tmp_path / "tools"
    closed.mkdir(mode=0o000)
    loop.symlink_to("loop")
    tools.mkdir()
    (tools / "not-executable").write_text("")
    environment = {"PATH": f"{closed}:{loop}:{tools}:{os.environ['PATH']}"}
    done = wrapped.run("no-such-command-here", environment=environment)
    assert (done.returncode, b"No such file" in done.stderr) == (127, True), done.stderr
    assert wrapped.run("not-executable", environment=environment).returncode == 126


def test_the_record_states_which_policy_this_attempt_asks_for_and_never_a_path(wrapped: Exec) -> None:
    assert wrapped.run("true", environment={"TRAINWARDEN_POLICY": "megatron_aggressive"}).returncode == 0
    assert wrapped.read("metadata.json")["policy"] == "megatron_aggressive"
    done = wrapped.run("false", environment={"TRAINWARDEN_POLICY": "../mine.yaml"})
    assert (done.returncode, done.stderr.count(b"TRAINWARDEN_POLICY: '../mine.yaml': expected")) == (1, 1)
    assert "policy" not in wrapped.read("metadata.json")


def test_the_trace_that_a_command_printed_is_the_reason(wrapped: Exec) -> None:
    code = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"
    assert wrapped.python(code).returncode == 1
    error = wrapped.snapshot().error
    assert error is not None
    assert (error.failure, error.exception_type) == ("cuda_oom", "RuntimeError")
    assert error.traceback is not None
    assert error.traceback.startswith("Traceback")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_a_command_that_gets_sigterm_was_cancelled(wrapped: Exec, name: str) -> None:
    # A shell would not do: one that is just about to start a command may keep an interrupt for later.
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print('ready', flush=True); time.sleep(60)"
    )
    process = wrapped.start(sys.executable, "-c", code)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.Signals[name])
    assert process.wait(30) == 128 + signal.Signals[name]
    assert wrapped.snapshot().error is None
    assert (wrapped.read("metadata.json")["status"], wrapped.read("metadata.json")["reason"]) == ("cancelled", name)


def test_one_that_got_sigterm_and_leaves_with_status_0_has_not_finished(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(30) == 0
    assert wrapped.snapshot().state == "cancelled"


def test_one_that_is_ended_for_a_restart_shows_it(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "echo ready; sleep 60")
    assert process.stdout is not None
    process.stdout.readline()
    RecordStore(wrapped.folder).announce_restart(wrapped.read("metadata.json")["attempt_key"], "stalled")
    process.terminate()
    process.wait(30)
    assert (wrapped.read("metadata.json")["status"], wrapped.read("metadata.json")["reason"]) == (
        "cancelled",
        "restart",
    )


def test_while_it_runs_it_gives_signs_of_life_and_is_idle(wrapped: Exec) -> None:
    process = wrapped.start("sleep", "60")
    wait_until(lambda: (wrapped.folder / "metadata.json").exists() and wrapped.snapshot().state == "running")
    metadata = wrapped.snapshot().metadata
    assert metadata is not None
    assert metadata.last_update is not None
    assert (metadata.phase, abs(time.time() - metadata.last_update) < 30) == ("idle", True)
    process.terminate()
    process.wait(30)


def test_a_second_one_for_the_same_run_is_refused_while_the_first_lives(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "echo ready; sleep 60")
    assert process.stdout is not None
    process.stdout.readline()
    refused = wrapped.run("echo", "never")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"belongs to a live run" in refused.stderr
    assert wrapped.snapshot().state in ("pending", "running")
    process.terminate()
    process.wait(30)
    assert wrapped.run("true").returncode == 0


def test_of_two_ranks_the_first_writes_the_record_and_whoever_fails_first_the_error(wrapped: Exec) -> None:
    """As srun starts them: the key comes from the environment, and is the same for both."""
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_RESTART_COUNT": "1"}
    first = wrapped.start("sh", "-c", "echo ready; sleep 60", environment={**job, "SLURM_PROCID": "0"})
    assert first.stdout is not None
    first.stdout.readline()
    assert wrapped.run("sh", "-c", "exit 5", environment={**job, "SLURM_PROCID": "1"}).returncode == 5
    error = wrapped.snapshot().error
    assert error is not None
    assert (error.rank, error.exit_code, error.attempt_key) == (1, 5, "slurm:7:1")
    first.terminate()
    first.wait(30)
    assert wrapped.snapshot().state == "failed"
    assert wrapped.read("_error")["rank"] == 1
    assert wrapped.read("ranks/1.json")["status"] == "failed"
    assert wrapped.read("metadata.json")["attempts"][0]["key"] == "slurm:7:1"


def test_the_command_ends_with_its_wrapper_even_if_that_is_killed(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait(30)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert json.loads((wrapped.folder / "metadata.json").read_text())["status"] in ("pending", "running")


def test_without_anything_installed_it_works_as_well(wrapped: Exec, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r}); from trainwarden.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    inner = [sys.executable, "-I", "-S", "-c", code, "exec", "--run-id", "inner", "--", "sh", "-c", "exit 6"]
    done = wrapped.run("env", "-u", "TRAINWARDEN_ATTEMPT_KEY", f"TRAINWARDEN_RUNS_DIR={tmp_path / 'others'}", *inner)
    assert (done.returncode, done.stderr) == (6, b"")
    assert json.loads((tmp_path / "others/inner/_error").read_text())["exit_code"] == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--run-id", "../x"), b"--run-id"),
        (("--stall-seconds", "-1"), b"--stall-seconds"),
        (("--grace-seconds", "-1"), b"--grace-seconds"),
        (("--log", "/dev/null/x"), b"--log /dev/null/x"),
        (("--runs-dir", "/dev/null"), b"/dev/null"),
    ],
)
def test_what_makes_no_sense_is_status_2_and_nothing_is_started(
    wrapped: Exec, options: tuple[str, ...], said: bytes
) -> None:
    done = wrapped.run("echo", "never", options=options)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
    assert not (wrapped.folder / "metadata.json").exists()
