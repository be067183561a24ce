"""Signals reach a command under `trainwarden exec` once, wherever they are sent."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.exec.running import ROOT, Exec
from tests.waiting import wait_until

# Says which signals it gets, and ends with status 7 at SIGUSR2.
COUNTING = """
import os, signal, sys, time
def got(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\\n".encode())
    if number == signal.SIGUSR2:
        os._exit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, got)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""

# Leads a session whose terminal is standard input, and becomes what its arguments say.
LEAD = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("whom", ["process", "group"])
def test_each_signal_arrives_once(wrapped: Exec, whom: str) -> None:
    process = wrapped.start(sys.executable, "-c", COUNTING, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    send = os.kill if whom == "process" else os.killpg
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"):
        send(process.pid, signal.Signals[name])
        assert process.stdout.readline() == f"got {name}\n".encode()
    send(process.pid, signal.SIGUSR2)
    assert process.stdout.read() == b"got SIGUSR2\n"
    assert process.wait(30) == 7


def test_what_the_command_has_started_gets_them_as_well(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "sleep 60 & echo $!; wait; true")
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    wait_until(lambda: not Path(f"/proc/{grandchild}").exists())


def test_a_command_that_is_stopped_is_waited_for(wrapped: Exec) -> None:
    process = wrapped.start("sh", "-c", "echo $$; kill -STOP $$; echo again; exit 3")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    assert process.poll() is None
    # To the wrapper: it passes that on as well.
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == b"again\n"
    assert process.wait(30) == 3


def test_what_was_ignored_at_the_start_stays_ignored(wrapped: Exec) -> None:
    """As under nohup."""
    command = [sys.executable, "-m", "trainwarden", "exec", "--run-id", "r", "--", "sh", "-c", "echo ready; sleep 1"]
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAINWARDEN_RUNS_DIR": str(wrapped.runs)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0
    assert wrapped.snapshot().state == "succeeded"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def _read_until(descriptor: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(descriptor, 1000)
    return seen


def test_ctrl_c_in_a_terminal_arrives_once_and_reaches_the_script_around_it(
    wrapped: Exec, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    inner = f"{sys.executable} -m trainwarden exec --run-id r -- {sys.executable} -c '{COUNTING}'"
    script = f"trap 'echo outer interrupted' INT\n{inner}\necho status $?\n"
    command = [sys.executable, "-c", LEAD, "/bin/sh", "-c", script]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAINWARDEN_RUNS_DIR": str(wrapped.runs)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    _read_until(ours, b"ready")
    os.write(ours, b"\x03")
    seen = _read_until(ours, b"got SIGINT")
    os.kill(wrapped.read("metadata.json")["pid"], signal.SIGUSR2)
    seen += _read_until(ours, b"status 7")
    assert process.wait(30) == 0
    assert b"outer interrupted" in seen
    assert seen.count(b"got SIGINT") == 1


def test_a_signal_that_a_process_sends_in_a_terminal_is_passed_on(wrapped: Exec, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    inner = ["-m", "trainwarden", "exec", "--run-id", "r", "--", sys.executable, "-c", COUNTING]
    command = [sys.executable, "-c", LEAD, sys.executable, *inner]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAINWARDEN_RUNS_DIR": str(wrapped.runs)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    _read_until(ours, b"ready")
    process.send_signal(signal.SIGINT)
    _read_until(ours, b"got SIGINT")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(30) == 7
