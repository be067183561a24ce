"""`trainwarden heartbeat` and `trainwarden phase`."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.shell.calling import Shell
from trainwarden.record.document import JsonObject
from trainwarden.record.progress import Progress, read_progress

pytestmark = pytest.mark.process

ROOT = Path(trainwarden.__file__).resolve().parents[1]


def test_the_first_command_begins_the_attempt_and_readers_see_a_running_run(shell: Shell) -> None:
    assert shell.call("heartbeat").returncode == 0
    snapshot = shell.snapshot()
    assert snapshot.metadata is not None
    assert (snapshot.state, snapshot.metadata.phase, snapshot.metadata.attempt) == ("running", "idle", 0)
    assert (snapshot.metadata.attempt_key, snapshot.metadata.scheduler) == ("slurm:7:0", "slurm")
    assert [(beat.rank, beat.status) for beat in snapshot.ranks] == [(0, "running")]
    assert snapshot.progress is None
    assert snapshot.unreadable == ()


def test_the_record_names_the_instance(shell: Shell) -> None:
    assert shell.call("heartbeat", TRAINWARDEN_INSTANCE_ID="i-01fa5b57d64c6196a").returncode == 0
    assert shell.read("metadata.json")["instance_id"] == "i-01fa5b57d64c6196a"


def test_a_step_is_progress_and_ends_the_phases_before_training(shell: Shell) -> None:
    shell.call("phase", "load")
    assert shell.read("metadata.json")["phase"] == "load"
    values = ("--loss", "2.5", "--learning-rate=1e-4", "--epoch", "1", "--metric", "acc=0.5", "--metric", "f1=1")
    done = shell.call("heartbeat", "--step", "7", "--total-steps", "20", *values)
    assert (done.returncode, done.stderr) == (0, "")
    progress = shell.snapshot().progress
    assert progress is not None
    assert (progress.step, progress.total_steps, progress.loss, progress.learning_rate) == (7, 20, 2.5, 1e-4)
    assert (progress.epoch, progress.metrics, progress.high_water) == (1.0, {"acc": 0.5, "f1": 1.0}, 7)
    metadata = shell.read("metadata.json")
    assert (metadata["phase"], metadata["attempts"][0]["resume_step"]) == ("train", 7)
    assert progress.problems == ()


def test_the_loop_is_remembered_from_one_command_to_the_next(shell: Shell) -> None:
    """Across attempts too: what a loop in one process keeps in memory."""

    def report(step: int, key: str) -> Progress:
        shell.call("heartbeat", "--step", str(step), key=key)
        progress = read_progress(shell.folder)
        assert isinstance(progress, Progress)
        return progress

    report(10, "slurm:7:0")
    first = report(30, "slurm:7:0")
    assert (first.steps_completed, first.high_water) == (21, 30)
    again = report(30, "slurm:7:0")
    assert (again.steps_completed, again.moved_time) == (21, first.moved_time)
    assert again.last_updated is not None
    assert again.last_updated > (first.last_updated or 0)
    resumed = report(20, "slurm:7:1")
    assert (resumed.step, resumed.high_water, resumed.steps_completed) == (20, 30, 22)
    behind = report(15, "slurm:7:1")
    assert behind.step_time == resumed.step_time != behind.moved_time
    ahead = report(25, "slurm:7:1")
    assert ahead.step_time == ahead.moved_time
    assert shell.read("metadata.json")["attempt"] == 1


def test_a_heartbeat_without_a_step_is_no_progress(shell: Shell) -> None:
    shell.call("heartbeat", "--step", "3")
    before = shell.read("progress.json")
    shell.call("heartbeat")
    shell.call("heartbeat", "--loss", "1.5")
    after = shell.read("progress.json")
    assert (after["loss"], after["last_updated"]) == (1.5, before["last_updated"])


def test_nan_is_counted_and_never_written(shell: Shell) -> None:
    for loss in ("nan", "inf", "-inf", "1.0"):
        shell.call("heartbeat", "--step", "1", "--loss", loss)
    text = (shell.folder / "progress.json").read_text()
    assert json.loads(text, parse_constant=lambda _: pytest.fail("no JSON"))["nonfinite"] == 3


def test_what_somebody_else_wrote_is_kept_where_it_can_be(shell: Shell) -> None:
    shell.call("heartbeat")
    metadata = {**shell.read("metadata.json"), "theirs": float("nan"), "model": "llama"}
    (shell.folder / "metadata.json").write_text(json.dumps(metadata))
    (shell.folder / "progress.json").write_text('{"high_water": "x", "steps_completed": -1, "metrics": 7}')
    assert shell.call("heartbeat", "--step", "4", "--metric", "a=1").returncode == 0
    snapshot = shell.snapshot()
    assert snapshot.metadata is not None
    assert snapshot.progress is not None
    assert (snapshot.metadata.model, snapshot.progress.high_water) == ("llama", 4)


def test_a_run_without_a_phase_is_idle_until_it_makes_a_step(shell: Shell) -> None:
    """Another tool wrote no phase; a phase called "None" would read as train, with a stall budget."""
    shell.call("heartbeat")
    metadata = {name: value for name, value in shell.read("metadata.json").items() if name != "phase"}
    (shell.folder / "metadata.json").write_text(json.dumps(metadata))
    assert shell.call("heartbeat").returncode == 0
    assert shell.read("metadata.json")["phase"] == "idle"
    assert shell.call("heartbeat", "--step", "1").returncode == 0
    assert shell.read("metadata.json")["phase"] == "train"


def test_many_at_once_lose_nothing_and_break_nothing(shell: Shell) -> None:
    """Ranks of one job, each in a process of its own, and two that both are the first."""
    shell.call("heartbeat", "--step", "0")

    def report(number: int) -> int:
        rank = number % 4
        return shell.call("heartbeat", "--metric", f"m{number}=1", SLURM_PROCID=str(rank)).returncode

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(report, range(24))) == {0}
    snapshot = shell.snapshot()
    assert snapshot.progress is not None
    assert set(snapshot.progress.metrics) == {f"m{number}" for number in range(0, 24, 4)}
    assert [beat.rank for beat in snapshot.ranks] == [0, 1, 2, 3]
    assert snapshot.unreadable == ()
    assert [path.name for path in shell.folder.iterdir() if path.name.endswith(".tmp")] == []


def test_two_that_begin_at_once_begin_one_attempt(shell: Shell) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: shell.call("heartbeat", "--step", "1").returncode, range(4))) == {0}
    assert len(shell.read("metadata.json")["attempts"]) == 1


@cases(
    ("arguments", "said"),
    [
        (("heartbeat", "--stpe", "1"), "--stpe"),
        (("heartbeat", "--step"), "--step"),
        (("heartbeat", "--step", "-1"), "whole number"),
        (("heartbeat", "--step", "abc"), "'abc'"),
        (("heartbeat", "--loss", "low"), "--loss"),
        (("heartbeat", "--metric", "a"), "NAME=NUMBER"),
        (("heartbeat", "7"), "'7'"),
        (("heartbeat", "--run-id", "../x"), "../x"),
        (("phase",), "one phase"),
        (("phase", "trian"), "train"),
        (("phase", "train", "eval"), "one phase"),
    ],
)
def test_misuse_is_status_2_and_states_what_was_expected(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    done = shell.call(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not shell.runs.exists()


def test_without_a_run_there_is_nothing_to_report(shell: Shell) -> None:
    done = shell.call("heartbeat", TRAINWARDEN_RUN_ID="")
    assert (done.returncode, "--run-id" in done.stderr) == (2, True)
    assert "TRAINWARDEN_ATTEMPT_KEY" in shell.call("heartbeat", key="nonsense").stderr


def test_a_value_that_a_script_could_not_find_out_counts_as_not_given(shell: Shell) -> None:
    assert shell.call("heartbeat", "--step", "4", "--loss", "").returncode == 0
    assert "loss" not in {name for name, value in shell.read("progress.json").items() if value is not None}


def test_a_folder_that_cannot_be_written_ends_no_training(shell: Shell) -> None:
    shell.runs.write_text("a file in its place")
    for command in (("heartbeat", "--step", "1"), ("phase", "train")):
        done = shell.call(*command)
        assert (done.returncode, "nothing was recorded" in done.stderr) == (0, True)
        assert shell.call(*command, "--strict").returncode == 1


def test_a_record_that_the_library_writes_is_left_to_it(shell: Shell) -> None:
    code = "import trainwarden\nwith trainwarden.run('r') as run: run.step(5); print('ready', flush=True); input()"
    training = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**shell.environment, "TRAINWARDEN_ATTEMPT_KEY": "slurm:7:0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    done = shell.call("heartbeat", "--step", "1", "--strict")
    assert (done.returncode, f"process {training.pid}" in done.stderr) == (1, True)
    training.communicate("\n", timeout=30)
    assert shell.read("_complete")["step"] == 5


def test_an_attempt_that_a_newer_one_replaced_exports_nothing_more(shell: Shell) -> None:
    shell.call("heartbeat", "--step", "1", key="slurm:7:0")
    shell.call("heartbeat", "--step", "2", key="slurm:7:1")
    done = shell.call("heartbeat", "--step", "9", "--strict", key="slurm:7:0")
    assert (done.returncode, "newer attempt" in done.stderr) == (1, True)
    assert shell.read("progress.json")["step"] == 2
    assert shell.read("metadata.json")["attempt_key"] == "slurm:7:1"


def test_the_calling_shell_is_the_attempt_where_nothing_else_names_one(shell: Shell) -> None:
    script = "trainwarden heartbeat --run-id r; trainwarden heartbeat --run-id r --step 2; echo $$"
    pid = shell.run("bash", script).stdout.strip()
    metadata = shell.read("metadata.json")
    assert metadata["attempt_key"].startswith(f"local:{pid}-")
    assert len(metadata["attempts"]) == 1


def test_a_heartbeat_loads_next_to_nothing() -> None:
    """It is called all the time: a few modules more, and it takes twice as long."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import trainwarden.cli, trainwarden.shell.heartbeat\n"
    code += "print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    slow = {"argparse", "dataclasses", "typing", "pathlib", "datetime", "logging", "importlib.metadata", "inspect"}
    assert loaded & {*slow, "contextlib", "subprocess", "threading", "tempfile", "traceback", "signal"} == set()
    assert "trainwarden.record.attempt" not in loaded
    assert "trainwarden.record.store" in loaded


def test_importing_the_package_loads_next_to_nothing() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); import trainwarden\n"
    code += "print(' '.join(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"trainwarden", "__future__"}


def test_a_document_is_what_readers_expect(shell: Shell) -> None:
    """Times with microseconds and Z, as everywhere in the record."""
    shell.call("heartbeat", "--step", "1")
    document = JsonObject(shell.read("progress.json"), 0.0)
    assert all(document.time(name) for name in ("last_updated", "step_time", "moved_time"))
    assert document.problems == []


def test_a_variable_that_names_no_place_in_s3_keeps_nothing_from_being_recorded_here(shell: Shell) -> None:
    wrong = "http://x"
    for step, arguments, status in (("1", (), 0), ("2", (), 0), ("3", ("--strict",), 2)):
        done = shell.call("heartbeat", "--step", step, *arguments, TRAINWARDEN_S3_URL=wrong)
        assert (done.returncode, shell.read("progress.json")["step"]) == (status, int(step))
        assert "TRAINWARDEN_S3_URL='http://x' is no place in S3" in done.stderr
    assert shell.call("phase", "eval", "--strict", TRAINWARDEN_S3_URL=wrong).returncode == 2
    assert shell.read("metadata.json")["phase"] == "eval"
