"""`trainwarden watch` beside a process that writes a log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trainwarden.exec.tail import Tail
from trainwarden.jobs.log_command import ended_process, main
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.stack.slack_sink import SlackSink


@pytest.mark.process
def test_a_process_that_ends_with_a_failure_in_its_log_alerts(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 10/100 loss 2.5\n")
    training = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE)
    command = [sys.executable, "-m", "trainwarden", "watch", str(log), f"--pid={training.pid}", "--interval=0.1"]
    watch = subprocess.Popen(
        [*command, f"--runs-dir={tmp_path}/runs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
    )
    try:

        def step() -> bool:
            found = read_progress(tmp_path / "runs/train")
            return isinstance(found, Progress) and found.step == 10

        wait_until(step, "the step of the log")
        with log.open("a") as file:
            file.write("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        training.communicate(b"\n", timeout=60)
        out, errors = watch.communicate(timeout=60)
    finally:
        training.kill()
        watch.kill()
    assert watch.returncode == 1, errors
    assert "train  failed  step 10" in out.lower()
    assert "out of memory" in errors
    metadata = read_metadata(tmp_path / "runs/train")
    assert isinstance(metadata, Metadata)
    assert (metadata.status, metadata.scheduler) == ("failed", "local")


@pytest.mark.process
def test_what_a_hostile_log_prints_moves_no_terminal_and_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 10/100 loss 2.5\nRuntimeError: \x1b]0;mine\x07\x1b[2J at HF_TOKEN=hf_abcdefghijklmnop\n")
    training = subprocess.Popen(["true"])
    os.waitid(os.P_PID, training.pid, os.WEXITED | os.WNOWAIT)
    try:
        main([str(log), f"--pid={training.pid}", f"--runs-dir={tmp_path}/runs"])
    finally:
        training.wait()
    printed = "".join(capsys.readouterr())
    assert "RuntimeError: " in printed
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "hf_abc" not in printed


def watch(log: Path, *arguments: str) -> int:
    """The exit status of `trainwarden watch` of this log, whose record is kept."""
    return main([str(log), f"--runs-dir={log.parent}/runs", "--interval=0.1", *arguments])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log; no settings of this user are read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "train.log"


@pytest.mark.process
def test_a_log_that_stands_still_alerts_while_its_process_lives(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_text("step 10/100 loss 2.5\n")
    sink = SlackSink()
    training = subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE)

    def end() -> None:
        wait_until(lambda: sink.messages, "the alert about the stall", timeout=30)
        training.communicate(b"\n", timeout=60)

    ending = threading.Thread(target=end)
    try:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", sink.url)
        ending.start()
        assert watch(log, f"--pid={training.pid}", "--inactivity=1s") == 3
        ending.join()
    finally:
        training.kill()
        sink.close()
    assert "Run ID: train" in sink.messages[0].plain().replace("*", "")
    assert "Stands still in phase train" in sink.messages[0].plain()


@pytest.mark.process
def test_a_process_that_ends_after_its_last_step_has_succeeded(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("step 10/100 loss 2.5\n")
    script = f"while [ ! -d {log.parent}/runs/train ]; do sleep 0.05; done; echo 'step 100/100 loss 2.1' >> {log}"
    training = subprocess.Popen(["sh", "-c", script])
    reaped = threading.Thread(target=training.wait)
    reaped.start()
    assert watch(log, f"--pid={training.pid}") == 0
    reaped.join()
    assert "SUCCEEDED" in capsys.readouterr().err


def test_without_a_process_a_log_that_names_a_failure_and_stands_still_has_ended(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainwarden.jobs.log_command._SETTLED_SECONDS", 0.5)
    log.write_text("step 10/100 loss 2.5\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert watch(log) == 1
    assert "out of memory" in capsys.readouterr().err
    metadata = read_metadata(log.parent / "runs/train")
    assert isinstance(metadata, Metadata)
    assert metadata.status == "failed"


def test_how_a_process_has_ended_is_unknown_without_a_word_in_its_log() -> None:
    tail = Tail()
    tail.add(b"step 10/100\n")
    found = ended_process(tail, is_done=False)
    assert (found.status, found.unknown) == ("cancelled", True)
    assert ended_process(tail, is_done=True).status == "succeeded"


def test_a_process_that_is_not_there_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "train.log"), "--pid=2147483646"]) == 2
    gone = "there is no process 2147483646 any more; trainwarden scan LOGFILE judges a log that is over"
    assert capsys.readouterr().err == f"trainwarden watch: --pid: {gone}\n"
    with pytest.raises(SystemExit) as end:
        main([str(tmp_path / "train.log"), "--pid=-1"])
    assert end.value.code == 2
    assert "'-1': expected the id of a process" in capsys.readouterr().err


@pytest.mark.process
def test_a_log_that_cannot_be_read_is_misuse(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training = subprocess.Popen(["true"])
    os.waitid(os.P_PID, training.pid, os.WEXITED | os.WNOWAIT)  # one that is over: a watch of it ends, too
    try:
        log.mkdir()
        assert watch(log, f"--pid={training.pid}") == 2
        assert capsys.readouterr().err == f"trainwarden watch: {log}: is no plain file; expected a log\n"
        log.rmdir()
        log.write_text("step 10/100 loss 2.5\n")
        opened = os.open

        def refuse(path: str | Path, *more: Any, **named: Any) -> int:
            if str(path) == str(log):
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *more, **named)

        monkeypatch.setattr(os, "open", refuse)
        assert watch(log, f"--pid={training.pid}") == 2
        assert capsys.readouterr().err == f"trainwarden watch: {log}: Permission denied\n"
    finally:
        training.wait()


@pytest.mark.process
def test_a_log_that_is_not_there_yet_is_awaited_and_named(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = subprocess.Popen(["true"])
    os.waitid(os.P_PID, training.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert watch(log, f"--pid={training.pid}") == 3
    finally:
        training.wait()
    assert f"{log}: does not exist yet; waiting for it" in capsys.readouterr().err


@pytest.mark.process
def test_a_training_of_which_nothing_but_its_log_is_known_is_pending_until_there_is_one(tmp_path: Path) -> None:
    log, runs = tmp_path / "train.log", tmp_path / "runs"
    command = [sys.executable, "-m", "trainwarden", "watch", str(log), "--interval=0.1", f"--runs-dir={runs}"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)

    def status() -> str | None:
        found = read_metadata(runs / "train")
        return found.status if isinstance(found, Metadata) else None

    try:
        assert watch.stdout is not None
        assert watch.stdout.readline().endswith("] train  PENDING\n")
        assert status() == "pending"
        log.write_text("step 10/100 loss 2.5\n")
        wait_until(lambda: status() == "running", "the log")
        assert "RUNNING" in watch.stdout.readline()
        watch.terminate()
        assert watch.wait(60) == 0
    finally:
        watch.kill()
        watch.communicate()


@pytest.mark.process
@pytest.mark.parametrize("is_kept", [True, False])
def test_an_alert_names_the_record_where_it_is_kept(
    log: Path, capsys: pytest.CaptureFixture[str], is_kept: bool
) -> None:
    log.write_text("step 10/100 loss 2.5\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    training = subprocess.Popen(["true"])
    os.waitid(os.P_PID, training.pid, os.WEXITED | os.WNOWAIT)
    try:
        main([str(log), f"--pid={training.pid}", *([f"--runs-dir={log.parent}/runs"] if is_kept else [])])
    finally:
        training.wait()
    alert = capsys.readouterr().err
    assert "Status: FAILED" in alert
    assert ("Record: " in alert) is is_kept
