"""A run's record, as it grows."""

import json
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainwarden
from tests.unit.library.looking import read_metadata, read_progress, read_rank, read_snapshot
from tests.unit.library.processes import Script, Starter
from tests.waiting import wait_until


def test_the_record_is_there_before_training_starts(attempt: Starter, folder: Path) -> None:
    with attempt(model="m", framework="f", method="sft"):
        said = read_metadata(folder)
        assert (said.run_id, said.status, said.phase, said.version) == ("r", "running", "init", 1)
        assert (said.attempt, said.attempt_key, said.job_id, said.scheduler) == (0, "local:5:0", "5", "local")
        assert (said.model, said.framework, said.method, said.pid) == ("m", "f", "sft", os.getpid())
        assert said.attempt_start_time == said.attempts[0].start_time
        assert not (folder / "progress.json").exists()


def test_the_record_states_which_signals_and_which_logs_the_run_asks_for(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt():
        assert (read_metadata(folder).signals, read_metadata(folder).log_path) == (None, None)
    monkeypatch.setenv("TRAINWARDEN_SIGNALS", "megatron_basic")
    monkeypatch.setenv("TRAINWARDEN_LOG_PATH", "/logs/{run_id}/*.out")
    with attempt():
        said = read_metadata(folder)
        assert (said.signals, said.log_path) == ("megatron_basic", "/logs/{run_id}/*.out")


def test_the_record_states_which_restart_policy_the_run_asks_for(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt():
        assert read_metadata(folder).policy is None
    monkeypatch.setenv("TRAINWARDEN_POLICY", "megatron_aggressive")
    with attempt():
        assert read_metadata(folder).policy == "megatron_aggressive"


@pytest.mark.parametrize("name", ["../mine", "/etc/mine.yaml", "Mine", "m" * 65, "mine\n"])
def test_what_is_no_name_of_a_policy_is_refused_with_one_warning(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setenv("TRAINWARDEN_POLICY", name)
    with attempt() as run:
        run.phase("eval")
    assert "policy" not in json.loads((folder / "metadata.json").read_text())
    [said] = [record.getMessage() for record in caplog.records if "TRAINWARDEN_POLICY" in record.getMessage()]
    assert "expected a name of 1 to 64 of a-z, 0-9, _ and -" in said


def test_what_the_loop_reports_is_in_the_record_while_it_runs_with_the_loops_own_time(
    attempt: Starter, folder: Path
) -> None:
    with attempt(total_steps=100) as run:
        before = time.time()
        run.step(7, loss=np.float32(0.5), learning_rate=1e-3, grad_norm=2.0, epoch=1, accuracy=0.25)
        after = time.time()
        wait_until((folder / "progress.json").exists)
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
    monkeypatch.setattr("trainwarden.training.rank_publisher.LIVENESS_SECONDS", 0.0)
    with attempt() as run:
        run.step(1)
        wait_until((folder / "progress.json").exists)
        written = (folder / "progress.json").stat()
        alive, rank = read_metadata(folder).last_update, read_rank(folder, 0).time
        wait_until(lambda: read_metadata(folder).last_update > alive and read_rank(folder, 0).time > rank)
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
        try:
            [][number]
        except IndexError as error:
            run.error(error, data=[1, "x"])
        run.epoch(1)
        run.note("shuffled", seed=7)
        watching = False
    assert touched == []


def test_phases_take_effect_at_once_and_give_way_again(attempt: Starter, folder: Path) -> None:
    def phase() -> object:
        return read_metadata(folder).phase

    with attempt() as run:
        run.phase("load")
        wait_until(lambda: phase() == "load")
        run.step(1)
        wait_until(lambda: phase() == "train")
        began = read_metadata(folder).phase_time
        with run.phase("checkpoint"):
            wait_until(lambda: phase() == "checkpoint")
            run.step(2)
        wait_until(lambda: phase() == "train")
        assert read_metadata(folder).phase_time > began
        with run.phase("no such phase"):
            assert phase() == "train"
    assert phase() == "done"


def test_nothing_that_a_loop_reports_raises(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        values: tuple[Any, ...] = (math.nan, math.inf, 10**400, "x", object(), [1], {"a": 1}, np.zeros(3), b"\xff")
        for value in values:
            run.step(1, loss=value, learning_rate=value, grad_norm=value, tokens=value, samples=value, extra=value)
            run.step(value)
            run.phase(value)
            run.checkpoint_saved(value, value)
            run.epoch(value)
            run.note(value, value=value, values={"nested": [value]})
            run.error(value, severity=value, category=value, value=value)
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
        wait_until((folder / "progress.json").exists)
    assert asked == [threading.current_thread().name] * 6
    said = read_progress(folder)
    assert (said.loss, said.learning_rate, said.grad_norm, said.metrics) == (0.5, 0.5, 0.5, {"extra": 0.5})


@pytest.mark.process
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


def test_without_a_run_the_modules_functions_do_nothing() -> None:
    trainwarden.step(1, loss=2.0)
    trainwarden.checkpoint_saved("/nowhere")
    with trainwarden.phase("eval"):
        assert trainwarden.resume_checkpoint() is None


def test_a_run_without_a_name_is_named_after_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    with trainwarden.run(dir=tmp_path) as run:
        assert run.run_id == "slurm-123"


def test_a_run_without_a_name_is_no_other_than_the_one_before_unless_that_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def names(generation: int) -> list[str]:
        monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", f"slurm:6:{generation}")
        monkeypatch.setattr("trainwarden.training.current._succeeded", Counter())
        with pytest.raises(MemoryError), trainwarden.run(dir=tmp_path) as failed:
            raise MemoryError
        with trainwarden.run(dir=tmp_path) as retried:
            retried.step(7)
        with trainwarden.run(dir=tmp_path) as second, pytest.raises(trainwarden.RunRefused):
            trainwarden.run(dir=tmp_path)
        with trainwarden.run("named", dir=tmp_path):
            pass
        with trainwarden.run(dir=tmp_path) as third:
            third.step(9)
        return [run.run_id for run in (failed, retried, second, third)]

    expected = ["slurm-6", "slurm-6", "slurm-6-2", "slurm-6-3"]
    assert names(0) == expected
    warned = [text.partition(":")[0] for text in caplog.messages if "Give each its own" in text]
    assert warned == expected[2:]
    assert read_progress(tmp_path / "slurm-6").step == 7
    assert read_progress(tmp_path / "slurm-6-3").step == 9
    assert names(1) == expected, "each is found again after a restart"
    assert read_metadata(tmp_path / "slurm-6-2").attempt == 1


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


@pytest.mark.process
def test_what_a_users_logging_raises_reaches_neither_the_loop_nor_the_writing_thread(script: Script) -> None:
    done = script.run("""
        import contextlib, logging, shutil, sys, time, trainwarden
        class Broken(logging.Handler):
            def emit(self, record):
                raise ValueError("a handler with a bug")
        logging.getLogger().addHandler(Broken())
        with trainwarden.run("r") as run:
            run.checkpoint_saved(object())
            while not run.folder.is_file():  # the writing thread may be making it anew meanwhile
                shutil.rmtree(run.folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    run.folder.write_text("in the way")
            while not run.write_errors:
                run.note("something to write")
                time.sleep(0.01)
            run.folder.unlink()
            run.step(7)
    """)
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.progress.step) == ("succeeded", 7)
