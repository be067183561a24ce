"""A run's record, as it grows."""

import json
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainwarden
from tests.unit.library.looking import read_metadata, read_progress, read_rank, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Script, eventually, line
from trainwarden.identity import host_name
from trainwarden.record.folder import write_json
from trainwarden.record.sentinels import record_failure
from trainwarden.taxonomy import FAILURES

Starter = Callable[..., trainwarden.Run]


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starter:
    """Starts an attempt of the run "r" under the key of a given generation."""

    def start(generation: int = 0, **options: Any) -> trainwarden.Run:
        monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", f"local:5:{generation}")
        return trainwarden.run("r", dir=tmp_path, **options)

    return start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "r"


def test_the_record_is_there_before_training_starts(attempt: Starter, folder: Path) -> None:
    with attempt(model="m", framework="f", method="sft"):
        said = read_metadata(folder)
        assert (said.run_id, said.status, said.phase, said.version) == ("r", "running", "init", 1)
        assert (said.attempt, said.attempt_key, said.job_id, said.scheduler) == (0, "local:5:0", "5", "local")
        assert (said.model, said.framework, said.method, said.pid) == ("m", "f", "sft", os.getpid())
        assert said.attempt_start_time == said.attempts[0].start_time
        assert not (folder / "progress.json").exists()


def test_what_the_loop_says_is_in_the_record_while_it_runs_with_the_loops_own_time(
    attempt: Starter, folder: Path
) -> None:
    with attempt(total_steps=100) as run:
        before = time.time()
        run.step(7, loss=np.float32(0.5), learning_rate=1e-3, grad_norm=2.0, epoch=1, accuracy=0.25)
        after = time.time()
        eventually((folder / "progress.json").exists)
        said = read_progress(folder)
        assert (said.step, said.total_steps, said.loss, said.learning_rate) == (7, 100, 0.5, 1e-3)
        assert (said.grad_norm, said.epoch, said.metrics) == (2.0, 1, {"accuracy": 0.25})
        # Written with microseconds.
        assert before - 1e-6 <= said.last_updated <= after
        assert said.step_time == said.last_updated


def test_the_total_may_become_known_later(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.expect(9)
        run.step(4)
    assert (read_progress(folder).total_steps, read_metadata(folder).reason) == (9, "ended at step 4 of 9")


def test_a_standing_loop_leaves_progress_alone_while_liveness_goes_on(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.training.writer.LIVENESS_SECONDS", 0.0)
    with attempt() as run:
        run.step(1)
        eventually((folder / "progress.json").exists)
        written = (folder / "progress.json").stat()
        alive, rank = read_metadata(folder).last_update, read_rank(folder, 0).time
        eventually(lambda: read_metadata(folder).last_update > alive + 1 and read_rank(folder, 0).time > rank + 1)
        assert (folder / "progress.json").stat().st_ino == written.st_ino


def test_every_step_is_in_the_record_at_the_end(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        for number in range(1, 50_001):
            run.step(number)
    assert (read_progress(folder).step, read_progress(folder).steps_completed) == (50_000, 50_000)


def test_a_step_touches_memory_only(attempt: Starter) -> None:
    """Whatever opens, makes or renames a file in the calling thread fails the test."""
    caller = threading.get_ident()
    touched: list[str] = []

    def watch(event: str, _args: object) -> None:
        is_io = event.partition(".")[0] in {"open", "os", "fcntl", "socket"}
        if is_io and watching and threading.get_ident() == caller:
            touched.append(event)

    watching = False
    sys.addaudithook(watch)
    with attempt() as run:
        watching = True
        for number in range(1000):
            run.step(number, loss=math.nan, weird=object())
            with run.phase("eval"):
                trainwarden.step(number)
        watching = False
    assert touched == []


def test_phases_take_effect_at_once_and_give_way_again(attempt: Starter, folder: Path) -> None:
    def phase() -> object:
        return read_metadata(folder).phase

    with attempt() as run:
        run.phase("load")
        eventually(lambda: phase() == "load")
        run.step(1)
        eventually(lambda: phase() == "train")
        began = read_metadata(folder).phase_time
        with run.phase("checkpoint"):
            eventually(lambda: phase() == "checkpoint")
            run.step(2)
        eventually(lambda: phase() == "train")
        assert read_metadata(folder).phase_time > began
        with run.phase("no such phase"):
            assert phase() == "train"
    assert phase() == "done"


def test_nothing_that_a_loop_says_raises(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        values: tuple[Any, ...] = (math.nan, math.inf, 10**400, "x", object(), [1], {"a": 1}, np.zeros(3), b"\xff")
        for value in values:
            run.step(1, loss=value, learning_rate=value, grad_norm=value, tokens=value, samples=value, extra=value)
            run.step(value)
            run.phase(value)
            run.checkpoint_saved(value, value)
        run.step(2)
    said = read_snapshot(folder)
    assert (said.state, said.progress.step, said.unreadable) == ("succeeded", 2, ())


def test_values_are_taken_once_and_by_the_loop_alone(attempt: Starter, folder: Path) -> None:
    """One on a device may block whoever asks: that must never be the thread that shows life and the end."""
    asked: list[str] = []

    class OnDevice:
        def __float__(self) -> float:
            asked.append(threading.current_thread().name)
            return 0.5

    value: Any = OnDevice()
    with attempt() as run:
        run.step(1, loss=value, learning_rate=value, grad_norm=value, tokens=value, samples=value, extra=value)
        eventually((folder / "progress.json").exists)
    assert asked == [threading.current_thread().name] * 6
    said = read_progress(folder)
    assert (said.loss, said.learning_rate, said.grad_norm, said.metrics) == (0.5, 0.5, 0.5, {"extra": 0.5})


def test_a_loop_that_waits_for_a_value_for_ever_is_seen_alive_and_its_end_recorded(script: Script) -> None:
    done = script.run("""
        import signal, threading, time, trainwarden
        from trainwarden.training import writer
        writer.LIVENESS_SECONDS = 0
        class Stuck:
            def __float__(self):
                alive = run.folder / "metadata.json"
                seen = alive.stat().st_ino
                while alive.stat().st_ino == seen:
                    time.sleep(0.01)
                signal.raise_signal(signal.SIGTERM)
                time.sleep(60)
        with trainwarden.run("r") as run:
            run.step(1, loss=1.0)
            run.step(2, loss=Stuck())
    """)
    assert done.returncode == -signal.SIGTERM, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason, record.progress.step) == ("cancelled", "SIGTERM", 1)


def test_a_nan_loss_is_written_as_null_and_counted(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.step(1, loss=math.nan)
    document = json.loads((folder / "progress.json").read_text())
    assert (document["loss"], document["nonfinite"]) == (None, 1)


def test_attempts_are_counted_once_for_each_key_and_remember_where_they_resumed(attempt: Starter, folder: Path) -> None:
    for generation, first in ((0, 1), (1, 11), (1, 21), (2, 31)):
        with attempt(generation) as run:
            run.step(first)
    attempts = [(one.attempt, one.key, one.resume_step) for one in read_metadata(folder).attempts]
    assert attempts == [(0, "local:5:0", 1), (1, "local:5:1", 11), (2, "local:5:2", 31)]
    assert read_metadata(folder).attempt == 2


def test_a_new_attempt_keeps_the_runs_start_and_counters_and_starts_its_own(attempt: Starter, folder: Path) -> None:
    with attempt(0) as run:
        for number in (1, 2, 3):
            run.step(number, loss=math.inf)
    first = read_metadata(folder)
    with attempt(1) as run:
        run.step(2)
    second, progress = read_metadata(folder), read_progress(folder)
    assert second.start_time == first.start_time
    assert second.attempt_start_time > first.attempt_start_time
    assert (progress.step, progress.high_water, progress.steps_completed, progress.nonfinite) == (2, 3, 4, 3)
    assert (progress.attempt, progress.attempt_key) == (1, "local:5:1")


def test_a_new_attempt_puts_the_old_failure_aside_and_its_late_words_too(attempt: Starter, folder: Path) -> None:
    with pytest.raises(MemoryError), attempt(0):
        raise MemoryError
    assert read_snapshot(folder).state == "failed"
    with attempt(1):
        assert read_snapshot(folder).state == "running"
        assert (folder / "_error.0").exists()
        record_failure(folder, key="local:5:0", failure=FAILURES["peer_reset"], message="late")
        assert read_snapshot(folder).state == "running"


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_failure_of_an_early_rank_survives_a_rank_0_that_a_launcher_announced(
    attempt: Starter, folder: Path, status: str
) -> None:
    folder.mkdir()
    launcher = {"status": status, "attempt": 0, "attempt_key": "local:5:0", "host": host_name(), "pid": os.getppid()}
    write_json(folder / "metadata.json", {**launcher, "attempts": [{"attempt": 0, "key": "local:5:0"}]})
    record_failure(folder, key="local:5:0", failure=FAILURES["host_oom"], message="of rank 1")
    with attempt(0):
        pass
    assert (read_snapshot(folder).state, read_snapshot(folder).error.message) == ("failed", "of rank 1")


def test_a_second_start_under_the_same_key_forgets_the_first_ones_failure(attempt: Starter, folder: Path) -> None:
    """A batch script may try twice within one job."""
    with pytest.raises(MemoryError), attempt(0):
        raise MemoryError
    with attempt(0) as run:
        run.step(1)
    assert (read_snapshot(folder).state, read_metadata(folder).attempt) == ("succeeded", 0)


def test_an_old_attempt_that_still_lives_stops_writing_when_it_sees_a_new_one(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back to life on another host, where no lock tells."""
    old = script.start(
        """
        import trainwarden
        from trainwarden.training import writer
        writer.LIVENESS_SECONDS = 0
        with trainwarden.run("r") as run:
            run.step(1)
            print("runs", flush=True)
            while not run._recorder._writer._superseded:
                run.step(2)
        """,
        TRAINWARDEN_ATTEMPT_KEY="local:5:0",
    )
    assert line(old.stdout) == "runs\n"
    (script.folder / ".owner").unlink()
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", "local:5:1")
    # What the old one may have written at the same moment is put right by the next sign of life.
    monkeypatch.setattr("trainwarden.training.writer.LIVENESS_SECONDS", 0.0)
    with trainwarden.run("r", dir=script.runs) as new:
        assert old.wait(DEADLINE_SECONDS) == 0
        assert not (script.folder / "_complete").exists()
        new.step(50)
        eventually(lambda: (said := read_progress(script.folder)) and said.step == 50)
        eventually(lambda: read_metadata(script.folder).attempt_key == "local:5:1")
        assert read_metadata(script.folder).status == "running"


def test_a_launchers_count_is_used_until_the_record_has_its_own(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT", "4")
    with attempt(0):
        assert read_metadata(folder).attempt == 4
    with attempt(1):
        assert read_metadata(folder).attempt == 5


def test_a_damaged_record_does_not_keep_a_training_from_starting(attempt: Starter, folder: Path) -> None:
    folder.mkdir()
    (folder / "metadata.json").write_text('{"atte')
    (folder / "progress.json").write_text('{"attempt": 6, "step": 40, "high_water": 44}')
    with attempt() as run:
        run.step(41)
    assert read_metadata(folder).attempt == 7
    assert read_progress(folder).high_water == 44


def _checkpoint(folder: Path, step: Any) -> Path:
    path = folder / f"step-{step}.npz"
    np.savez(path, weights=np.full(100, step))
    return path


def test_the_newest_checkpoint_that_is_whole_is_resumed_from(
    attempt: Starter, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with attempt(0) as run:
        assert run.resume_checkpoint() is None
        for number in (10, 20, 30, 40):
            run.step(number)
            run.checkpoint_saved(_checkpoint(tmp_path, number))
    said = read_progress(folder)
    assert (said.checkpoint.step, said.checkpoints_saved) == (40, 4)
    assert [one.step for one in said.checkpoints] == [40, 30, 20]
    os.truncate(tmp_path / "step-40.npz", 300)
    (tmp_path / "step-30.npz").unlink()
    with attempt(1) as run, caplog.at_level(logging.WARNING, "trainwarden"):
        assert run.resume_checkpoint() == trainwarden.resume_checkpoint() == str(tmp_path / "step-20.npz")
    assert "step-40.npz is incomplete: it has 300 bytes" in caplog.text
    assert "step-30.npz is incomplete: it does not exist" in caplog.text


@pytest.mark.parametrize("left", [None, "", '{"step": 4', "[]"])
def test_a_progress_that_cannot_be_read_does_not_make_the_training_start_over(
    attempt: Starter, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str | None
) -> None:
    with attempt(0) as run:
        for number in (10, 20):
            run.step(number)
            run.checkpoint_saved(_checkpoint(tmp_path, number))
        run.step(25)
    progress = folder / "progress.json"
    if left is None:
        progress.unlink()
    else:
        progress.write_text(left)
    with attempt(1) as run:
        assert run.resume_checkpoint() == str(tmp_path / "step-20.npz")
        run.step(21)
    said = read_progress(folder)
    assert ([one.step for one in said.checkpoints], said.high_water >= 21) == ([20, 10], True)
    assert [path.read_text() for path in folder.glob("progress.json.damaged-*")] == ([] if left is None else [left])
    assert ("cannot be read" in caplog.text) == (left is not None)


def test_a_run_whose_checkpoints_cannot_be_known_says_so_before_it_starts_over(
    attempt: Starter, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    (folder / "progress.json").touch()
    with attempt() as run:
        assert run.resume_checkpoint() is None
    assert "NO CHECKPOINT IS KNOWN" in caplog.text


def test_a_checkpoint_is_on_disk_before_it_is_relied_on(
    attempt: Starter, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".json")[0])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    with attempt() as run:
        run.step(5)
        run.checkpoint_saved(_checkpoint(tmp_path, 5))
        eventually((folder / "checkpoint.json").exists)
        assert {".progress", ".checkpoint"} <= set(synced)


def test_a_disk_that_hangs_under_a_checkpoint_silences_neither_life_nor_end(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hanging(_path: Path) -> int:
        answers.wait(DEADLINE_SECONDS)
        return 77

    monkeypatch.setattr("trainwarden.training.measurement.size_of", hanging)
    monkeypatch.setattr("trainwarden.training.measurement.PATIENCE_SECONDS", 0.05)
    with attempt() as run:
        run.checkpoint_saved("/mnt/slow", 5)
        eventually(lambda: (said := read_progress(folder)) and said.checkpoint)
        assert read_progress(folder).checkpoint.size_bytes is None
        answers.set()
        eventually(lambda: read_progress(folder).checkpoint.size_bytes == 77)
        assert read_progress(folder).checkpoints_saved == 1
        answers.clear()
        run.checkpoint_saved("/mnt/slow2", 6)
    said = read_snapshot(folder)
    assert (said.state, said.progress.checkpoint.step) == ("succeeded", 6)
    answers.set()


def test_a_launchers_choice_comes_first_if_it_is_whole(
    attempt: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt(0) as run:
        for number in (10, 20):
            run.checkpoint_saved(_checkpoint(tmp_path, number), number)
    monkeypatch.setenv("TRAINWARDEN_RESUME_CHECKPOINT", str(tmp_path / "step-10.npz"))
    with attempt(1) as run:
        assert run.resume_checkpoint() == str(tmp_path / "step-10.npz")
        os.truncate(tmp_path / "step-10.npz", 300)
        assert run.resume_checkpoint() == str(tmp_path / "step-20.npz")


def test_a_checkpoint_is_recorded_without_waiting_for_the_next_step(
    attempt: Starter, folder: Path, tmp_path: Path
) -> None:
    with attempt() as run:
        run.step(5)
        run.checkpoint_saved(_checkpoint(tmp_path, 5))
        eventually(lambda: (said := read_progress(folder)) and said.checkpoint)
        assert read_progress(folder).checkpoint.size_bytes == (tmp_path / "step-5.npz").stat().st_size


def test_a_folder_that_disappears_under_the_run_comes_back(attempt: Starter, folder: Path, tmp_path: Path) -> None:
    with attempt() as run:
        run.step(1)
        folder.rename(tmp_path / "elsewhere")
        run.step(2)
    assert read_snapshot(folder).progress.step == 2


def test_a_disk_that_fails_later_is_counted_and_tried_again(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_args: object, **_values: object) -> None:
        raise OSError(28, "No space left on device")

    with attempt() as run:
        with monkeypatch.context() as patched:
            patched.setattr("trainwarden.training.store.write_json", full)
            run.step(1)
            eventually(lambda: run.write_errors >= 2)
        eventually((folder / "progress.json").exists)
    assert read_progress(folder).step == 1
    assert read_metadata(folder).write_errors >= 2
    assert [record.message for record in caplog.records if "No space left" in record.message]


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "a run id with a slash": ({"run_id": "a/b"}, {}, "run id 'a/b'"),
    "a run id from the environment": ({}, {"TRAINWARDEN_RUN_ID": ".."}, "run id '..'"),
    "an unusable key": ({"run_id": "r"}, {"TRAINWARDEN_ATTEMPT_KEY": "x"}, "TRAINWARDEN_ATTEMPT_KEY: 'x'"),
    "a stall budget that is no number": (
        {"run_id": "r"},
        {"TRAINWARDEN_STALL_SECONDS": "soon"},
        "TRAINWARDEN_STALL_SECONDS: 'soon'",
    ),
    "a phase that does not exist": ({"run_id": "r", "thresholds": {"stall_seconds": {"warp": 1}}}, {}, "'warp'"),
    "an odd number of steps": ({"run_id": "r", "total_steps": "many"}, {}, "total_steps='many'"),
    "a bucket": ({"run_id": "r", "s3": "s3://b"}, {}, "s3='s3://b'"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_understood_is_refused_by_name_before_anything_is_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, environment, said = REFUSALS[case]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(trainwarden.RunRefused) as refusal:
        trainwarden.run(**arguments, dir=tmp_path / "runs")
    assert said in str(refusal.value)
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_written_is_refused_by_name(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_args: object, **_values: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("trainwarden.training.store.write_json", read_only)
        with pytest.raises(trainwarden.RunRefused, match="Read-only file system") as refusal:
            attempt()
    assert str(folder) in str(refusal.value)
    with attempt():
        assert read_metadata(folder).status == "running"


def test_a_folder_without_permission_is_refused_by_name(script: Script) -> None:
    script.runs.mkdir(mode=0o500)
    done = script.run("""
        import os, trainwarden
        trainwarden.run  # loads what it needs while it may read all files
        if os.geteuid() == 0:
            os.seteuid(65534)
        try:
            trainwarden.run("r")
        except trainwarden.RunRefused as refusal:
            print(refusal)
    """)
    assert str(script.folder) in done.stdout
    assert "Permission denied" in done.stdout


def test_two_runs_at_once_in_one_process_are_refused(attempt: Starter, tmp_path: Path) -> None:
    with attempt(), pytest.raises(trainwarden.RunRefused, match="in this process"):
        trainwarden.run("other", dir=tmp_path)


def test_without_a_run_the_modules_functions_do_nothing() -> None:
    trainwarden.step(1, loss=2.0)
    trainwarden.checkpoint_saved("/nowhere")
    with trainwarden.phase("eval"):
        assert trainwarden.resume_checkpoint() is None


def test_a_run_without_a_name_is_named_after_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    with trainwarden.run(dir=tmp_path) as run:
        assert run.run_id == "slurm-123"


def test_thresholds_come_from_the_call_then_the_environment_then_the_defaults(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STALL_SECONDS", "10")
    monkeypatch.setenv("STALE_MINUTES", "2")
    with attempt(0):
        said = read_metadata(folder).thresholds
        assert (said.stale_seconds, said.stall_seconds["train"], said.stall_seconds["eval"]) == (120, 10, 1800)
    with attempt(1, thresholds={"stale_seconds": 30, "stall_seconds": {"train": 20}}):
        said = read_metadata(folder).thresholds
        assert (said.stale_seconds, said.stall_seconds["train"]) == (30, 20)
