"""An ended run of the tests leaves no process and no folder, whatever ended it and whatever its tests started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.session import VARIABLE
from tests.waiting import wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[1]
# A daemon with a session of its own, one without our environment, and one whose parent is gone.
PROGRAM = """\
import os, pathlib, signal, subprocess, tempfile

def test_that_never_ends(tmp_path):
    pathlib.Path(tempfile.mkdtemp(), "left").touch()
    commands = ["exec sleep 600", "trap '' INT TERM; exec sleep 600", "setsid --fork sleep 600"]
    started = [subprocess.Popen(["sh", "-c", each], start_new_session=True) for each in commands]
    started.append(subprocess.Popen(["sleep", "600"], env={}, cwd=tmp_path, start_new_session=True))
    there = pathlib.Path(os.environ["THERE"])
    pids = [os.getpid(), *(each.pid for each in started)]
    there.with_name("new").write_text(" ".join([os.environ["TW_TEST_SESSION"], *map(str, pids)]))
    there.with_name("new").rename(there)
    signal.pause()
"""


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_run_leaves_nothing(sent: signal.Signals, workers: str, tmp_path: Path) -> None:
    test, there = tmp_path / "test_endless.py", tmp_path / "there"
    test.write_text(PROGRAM, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment["THERE"] = str(there)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null", "-n", workers, str(test)]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(there.exists, lambda: f"the test runs\n{(tmp_path / 'log').read_text()}")
        folder, *pids = there.read_text(encoding="utf-8").split()
        assert all(_lives(pid) for pid in pids if pid != pids[3])  # that one has left another behind
        if sent == signal.SIGINT:  # as a terminal does
            os.killpg(run.pid, sent)
        else:
            run.send_signal(sent)
        wait_until(lambda: not [pid for pid in pids if _lives(pid)], lambda: _commands(folder), timeout=30)
        wait_until(lambda: not Path(folder).exists() and not _commands(folder), lambda: _commands(folder), timeout=30)
    finally:
        run.kill()
        run.wait()


def _lives(pid: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    return False


def _commands(folder: str) -> str:
    """The commands of all processes whose environment names the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{VARIABLE}={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text(encoding="utf-8").replace("\0", " "))
    return "\n".join(found)
