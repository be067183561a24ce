"""Before a run is ended its ranks show where they stand, to nobody but its user and root."""

from __future__ import annotations

import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from tests.unit.library.processes import Script, line
from tests.waiting import wait_until
from trainwarden.record import capture
from trainwarden.record.capture import NATIVE, NODE, STACKS, answer_path, parse_stacks, read_request, write_request
from trainwarden.training import stacks
from trainwarden.training.flight_recorder import flight_recorder_dump
from trainwarden.training.stacks import CaptureRequests, stacks_of_threads

KEY = "local:5:0"
HANGS = """
    import os, threading, time, trainwarden
    def all_reduce():
        threading.Event().wait()
    def read_data():
        os.read(os.pipe()[0], 1)
    with trainwarden.run("r") as run:
        run.step(7)
        print("there", flush=True)
        read_data() if os.environ["RANK"] == "1" else all_reduce()
"""


def _answer(folder: Path, rank: int) -> tuple[capture.StacksHeader, str] | None:
    try:
        return parse_stacks(answer_path(folder, rank, STACKS).read_bytes())
    except FileNotFoundError:
        return None


@pytest.mark.process
def test_each_rank_shows_where_it_hangs_and_one_that_is_stopped_is_the_one_that_is_silent(script: Script) -> None:
    ranks = [
        script.start(HANGS, RANK=each, LOCAL_RANK=each, WORLD_SIZE="3", TRAINWARDEN_ATTEMPT_KEY=KEY) for each in "012"
    ]
    for process in ranks:
        assert line(process.stdout) == "there\n"
    os.kill(ranks[2].pid, signal.SIGSTOP)
    write_request(script.folder, KEY, "i1")
    wait_until(lambda: _answer(script.folder, 0) and _answer(script.folder, 1))
    for rank, function in ((0, "all_reduce"), (1, "read_data")):
        found = _answer(script.folder, rank)
        assert found is not None
        header, text = found
        assert (header.rank, header.attempt_key, header.intent, header.step) == (rank, KEY, "i1", 7)
        assert (header.pid, header.phase) == (ranks[rank].pid, "train")
        first = text.partition("\n\n")[0]
        assert first.startswith(f"Thread {header.thread} [MainThread]")
        assert f"in {function}" in first
        assert stat.S_IMODE(answer_path(script.folder, rank, STACKS).stat().st_mode) == 0o600
    assert _answer(script.folder, 2) is None
    node = answer_path(script.folder, 0, NODE)
    wait_until(node.exists)
    assert stat.S_IMODE(node.stat().st_mode) == 0o600
    # The run goes on, where it is not ended after all.
    assert all(process.poll() is None for process in ranks)


@pytest.mark.process
def test_the_next_attempt_begins_without_the_answers_of_the_one_before(script: Script) -> None:
    first = script.start(HANGS, RANK="0", TRAINWARDEN_ATTEMPT_KEY=KEY)
    line(first.stdout)
    write_request(script.folder, KEY, "i1")
    wait_until(lambda: _answer(script.folder, 0))
    first.kill()
    first.wait()
    script.run("import trainwarden; trainwarden.run('r')", TRAINWARDEN_ATTEMPT_KEY="local:5:1")
    assert not (script.folder / "_capture").exists()
    assert _answer(script.folder, 0) is None


def test_a_request_is_answered_once_and_by_its_own_attempt_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", "")
    monkeypatch.setattr(stacks, "LOOK_SECONDS", 0.0)
    requests = CaptureRequests(tmp_path, KEY)
    assert requests.next() is None
    write_request(tmp_path, "local:5:1", "of another attempt")
    assert requests.next() is None
    write_request(tmp_path, KEY, "i1")
    found = requests.next()
    assert found is not None
    assert found.intent == "i1"
    assert requests.next() is None
    # At most one capture in ten seconds is answered.
    write_request(tmp_path, KEY, "i2")
    assert requests.next() is None
    monkeypatch.setattr(stacks, "_PAUSE_SECONDS", 0.0)
    assert requests.next() is not None


def test_only_one_rank_of_a_node_reads_the_folder_and_passes_the_request_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.mkdir(mode=0o700)
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(node))
    run = tmp_path / "run"
    run.mkdir()
    first, second = CaptureRequests(run, KEY), CaptureRequests(run, KEY)
    assert first.next() is None
    reads: list[Path] = []
    monkeypatch.setattr(stacks, "read_request", reads.append)
    assert second.next() is None
    assert reads == []
    monkeypatch.setattr(stacks, "read_request", read_request)
    write_request(run, KEY, "i1")
    monkeypatch.setattr(stacks, "LOOK_SECONDS", 0.0)
    assert first.next() is not None
    (run / "_capture").unlink()
    monkeypatch.setattr(stacks, "LOOK_SECONDS", 60.0)
    found = second.next()
    assert found is not None
    assert found.intent == "i1"


def test_a_request_of_another_user_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_request(tmp_path, KEY, "i1")
    assert read_request(tmp_path) is not None
    uid = os.geteuid()
    # The file is another user's now, and so is neither this process nor the folder.
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    real = os.fstat
    monkeypatch.setattr("trainwarden.record.document.os.fstat", lambda number: _of(real(number), uid + 2))
    assert read_request(tmp_path) is None
    monkeypatch.setattr("trainwarden.record.document.os.fstat", lambda number: _of(real(number), 0))
    assert read_request(tmp_path) is not None


def _of(status: os.stat_result, uid: int) -> os.stat_result:
    values = list(status)
    values[stat.ST_UID] = uid
    return os.stat_result(values)


def test_a_link_or_a_pipe_is_no_request(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "_capture")
    assert read_request(tmp_path) is None
    (tmp_path / "_capture").unlink()
    write_request(tmp_path, KEY, "i1")
    (tmp_path / "_capture").rename(tmp_path / "real")
    (tmp_path / "_capture").symlink_to(tmp_path / "real")
    assert read_request(tmp_path) is None


def test_the_thread_of_the_loop_comes_first() -> None:
    go = threading.Event()
    loop = threading.Thread(target=go.wait, name="a loop\n of a notebook", daemon=True)
    loop.start()
    try:
        text = stacks_of_threads(loop.ident or 0)
    finally:
        go.set()
        loop.join()
    assert text.startswith(f"Thread {loop.ident:#x} [a loop? of a notebook] (most recent call first):\n")
    assert "in test_the_thread_of_the_loop_comes_first" in text.partition("\n\n")[2].partition("\n\n")[0]


def test_the_flight_recorder_dumps_when_its_pipe_is_written_to(tmp_path: Path) -> None:
    assert flight_recorder_dump(3, {}) is None
    environ = {
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/trace_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_",
    }
    os.mkfifo(tmp_path / "pipe_3.pipe")
    reader = os.open(tmp_path / "pipe_3.pipe", os.O_RDONLY | os.O_NONBLOCK)

    def pytorch() -> None:
        wait_until(lambda: _read(reader) == b"1")
        (tmp_path / "trace_3").write_bytes(b"a dump")

    thread = threading.Thread(target=pytorch)
    thread.start()
    dump = flight_recorder_dump(3, environ)
    assert dump is not None
    assert dump() == b"a dump"
    thread.join()
    os.close(reader)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1)
    except BlockingIOError:
        return b""


@pytest.mark.process
def test_native_frames_are_those_of_py_spy_where_it_may_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not stacks.can_read_native_frames()
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    monkeypatch.setattr(stacks, "_PTRACE", str(scope))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not stacks.can_read_native_frames()
    scope.write_text("0\n")
    assert stacks.can_read_native_frames()
    assert stacks.output_of(["py-spy", "dump", "--pid", "5"]) == b"dump --pid 5\n"


def test_an_answer_is_cut_off_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    capture.write_answer(tmp_path, 0, NATIVE, b"x" * 10**6)
    assert answer_path(tmp_path, 0, NATIVE).stat().st_size == capture.LIMITS[NATIVE]
