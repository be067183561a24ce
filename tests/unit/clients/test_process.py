"""A command runs without a shell, until its deadline at most, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.integration.exporter.running import is_alive
from tests.waiting import wait_until
from trainwarden.clients.process import (
    CannotStart,
    Process,
    ProcessError,
    ProcessTimeout,
    TooMuchOutput,
    keep_child_status,
    one_line,
    run,
)

pytestmark = pytest.mark.process


def sh(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "sh", *arguments]


def test_output_errors_and_status_come_back_as_they_are() -> None:
    done = run(sh("printf '\\377\\000 x'; echo ' why ' >&2; exit 3"), 60.0)
    assert (done.status, done.output, done.errors, done.message) == (3, b"\xff\x00 x", b" why \n", "why")


def test_arguments_are_read_by_no_shell() -> None:
    assert run(["printf", "%s", "$(id); *"], 60.0).output == b"$(id); *"


def test_a_long_standard_input_and_a_long_output_do_not_block_each_other() -> None:
    data = os.urandom(1 << 20) * 3
    assert run(["cat"], 60.0, stdin=data).output == data


def test_a_command_that_does_not_read_its_input_ends_as_it_likes() -> None:
    assert run(sh("exit 4"), 60.0, stdin=b"x" * (4 << 20)).status == 4


@pytest.mark.parametrize("then", ["wait", "exit 0"])
def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path, then: str) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; {then}"
    with pytest.raises(ProcessTimeout, match="no answer within 3 s"):
        run(sh(script), 3.0)
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(child))


def test_a_command_that_closes_its_output_and_stays_is_killed() -> None:
    with pytest.raises(ProcessTimeout), Process(sh("exec >&- 2>&-; sleep 600"), 1.0) as process:
        pid = process._process.pid
        assert list(process.chunks()) == []
        assert process.status
    wait_until(lambda: not is_alive(pid))


def test_an_output_without_end_is_cut_off() -> None:
    with pytest.raises(TooMuchOutput):
        run(["cat", "/dev/zero"], 60.0, limit=1 << 20)


def test_output_is_read_while_the_command_runs() -> None:
    with Process(sh("echo first; sleep 600"), 60.0) as process:
        started = time.monotonic()
        assert next(process.chunks()) == b"first\n"
    assert time.monotonic() - started < 30


def test_a_signal_that_ends_the_command_is_its_negative_status() -> None:
    assert run(sh("kill -TERM $$"), 60.0).status == -signal.SIGTERM


def test_a_program_that_is_not_there_has_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="No such file"):
        run([str(tmp_path / "none")], 60.0)


def test_the_command_blocks_no_signal_although_its_parent_does() -> None:
    script = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        assert run([sys.executable, "-c", script], 60.0).output == b"[]\n"
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_environment_and_folder_are_those_given(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "ONLY": "1"}
    lines = run(["env"], 60.0, environment=environment).output.decode().splitlines()
    assert {"ONLY=1"} <= set(lines)
    assert not any(line.startswith("HOME=") for line in lines)
    assert run(["pwd"], 60.0).output == b"/\n"
    assert run(["pwd"], 60.0, cwd=tmp_path).output.decode().strip() == str(tmp_path.resolve())


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    assert one_line(b"a\n b\x1b[2J\xff") == "a b [2J\ufffd"
    assert len(one_line("x" * 1000)) == 300


def test_a_failure_is_never_taken_for_a_success_where_the_parent_ignored_sigchld() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(ProcessError, match="SIGCHLD is ignored"):
            run(["false"], 60.0)
        keep_child_status()
        assert run(["false"], 60.0).status == 1
    finally:
        signal.signal(signal.SIGCHLD, before)
