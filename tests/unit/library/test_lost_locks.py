"""A run keeps its folder although its lock is dropped, there are no locks, or its lock file is replaced."""

import json
import os
import signal
import textwrap
from pathlib import Path

import pytest

from tests.unit.library.looking import owner_of, read_progress
from tests.unit.library.processes import Script, line
from tests.waiting import wait_until
from trainwarden.identity import AttemptKey, host_name
from trainwarden.record.locks import is_locked, try_lock
from trainwarden.record.ownership import claim

pytestmark = pytest.mark.process

WAIT = """
    print("ready", flush=True)
    for step, _ in enumerate(__import__("sys").stdin, 10):
        run.step(step)
        print(step, flush=True)
"""
SECOND = 'import trainwarden; trainwarden.run("r"); print("runs")'
# What a file system without locks answers.
NO_LOCKS = """
    import errno, fcntl
    def refuse(*_): raise OSError(errno.ENOLCK, "No locks available")
    real, fcntl.flock, fcntl.lockf = fcntl.fcntl, refuse, refuse
    locks = {fcntl.F_OFD_SETLK, fcntl.F_OFD_GETLK, fcntl.F_SETLK, fcntl.F_GETLK}
    fcntl.fcntl = lambda fd, command, *rest: refuse() if command in locks else real(fd, command, *rest)
"""


def _code(*parts: str) -> str:
    return "\n".join(map(textwrap.dedent, parts))


@pytest.mark.parametrize(
    "careless",
    [
        'shutil.copytree(run.folder, run.folder.with_name("copy"))',
        '(run.folder / ".owner").read_text()',
        'open(run.folder / ".owner", "a").close()',
    ],
)
def test_reading_all_files_of_the_folder_does_not_lose_it(script: Script, careless: str) -> None:
    first = script.start(_code(f'import shutil, trainwarden\nrun = trainwarden.run("r")\n{careless}', WAIT))
    assert line(first.stdout) == "ready\n"
    refused = script.run(SECOND)
    assert "RunRefused" in refused.stderr
    assert f"process {first.pid} on host {host_name()}" in refused.stderr


def test_a_program_that_closes_all_files_does_not_lose_it(script: Script) -> None:
    first = script.start(
        _code('import os, trainwarden\nrun = trainwarden.run("r")\nrun.step(1)\nos.closerange(3, 4096)', WAIT)
    )
    assert line(first.stdout) == "ready\n"
    # At once: by its heartbeat. Then it has the lock again.
    refused = script.run(SECOND)
    assert "RunRefused" in refused.stderr, refused.stdout
    wait_until(lambda: _is_locked(script.folder))
    assert owner_of(script.folder).pid == first.pid


@pytest.mark.parametrize("key", ["", "slurm:7:0"], ids=["two jobs", "one job twice"])
def test_a_file_system_without_locks_refuses_the_second_by_the_heartbeat_of_the_first(script: Script, key: str) -> None:
    both = {"TRAINWARDEN_ATTEMPT_KEY": key} if key else {}
    first = script.start(_code(NO_LOCKS, 'import trainwarden\nrun = trainwarden.run("r")', WAIT), **both)
    assert line(first.stdout) == "ready\n"
    refused = script.run(_code(NO_LOCKS, SECOND), **both)
    assert "RunRefused" in refused.stderr, refused.stdout
    assert f"process {first.pid} on host {host_name()}" in refused.stderr
    assert "sign of life" in refused.stderr
    first.kill()
    first.wait()
    assert script.run(_code(NO_LOCKS, SECOND), **both).stdout == "runs\n"


def test_a_run_that_ended_or_never_trained_here_is_no_second_one_where_there_are_no_locks(script: Script) -> None:
    code = _code(NO_LOCKS, 'import trainwarden\nwith trainwarden.run("r") as run: run.step(1)', WAIT)
    first = script.start(code, TRAINWARDEN_ATTEMPT_KEY="local:5:0")
    assert line(first.stdout) == "ready\n"
    assert script.run(_code(NO_LOCKS, SECOND), TRAINWARDEN_ATTEMPT_KEY="local:6:0").stdout == "runs\n"


def test_a_run_that_lost_its_record_logs_it_once_and_trains_on_without_writing(script: Script) -> None:
    code = _code('import trainwarden\nrun = trainwarden.run("r")\nrun.step(1)', WAIT)
    first = script.start(code, TRAINWARDEN_ATTEMPT_KEY="local:5:0")
    assert line(first.stdout) == "ready\n"
    wait_until(lambda: read_progress(script.folder))
    descriptor = _replace_owner(script.folder)
    try:
        assert first.stdin is not None and first.stderr is not None
        said = first.stderr.readline()
        assert "belongs to process 4 on host elsewhere" in said
        assert "writes it no more" in said
        before = {path: path.read_bytes() for path in script.folder.rglob("*") if path.is_file()}
        for step in (10, 11):
            print(file=first.stdin, flush=True)
            assert line(first.stdout) == f"{step}\n"
        _, rest = first.communicate(timeout=60)
        assert (first.returncode, rest) == (0, "")
        after = {path: path.read_bytes() for path in script.folder.rglob("*") if path.is_file()}
        assert {path: content for path, content in before.items() if after.get(path) != content} in (
            {},
            {script.folder / "ranks" / "0.trace": before.get(script.folder / "ranks" / "0.trace")},
        )
        assert after.keys() <= before.keys()
    finally:
        os.close(descriptor)


def test_a_child_that_was_not_forked_by_python_does_not_hold_the_folder_of_a_run_that_has_ended(script: Script) -> None:
    first = script.start(
        """
        import ctypes, os, trainwarden
        with trainwarden.run("r") as run:
            child = ctypes.CDLL(None).fork()
            if child == 0:
                ctypes.CDLL(None).pause()
        print(child, flush=True)
        os.wait()
        """
    )
    child = int(line(first.stdout))
    try:
        assert script.run(SECOND).stdout == "runs\n"
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_lock_of_an_older_version_counts(tmp_path: Path) -> None:
    """It was a POSIX record lock."""
    import fcntl

    (tmp_path / ".owner").write_text(json.dumps({"host": "h", "pid": 4, "attempt_key": "slurm:8:0"}))
    (reader, writer), (may_end, let_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with (tmp_path / ".owner").open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.write(writer, b"x")
            os.read(may_end, 1)
            os._exit(0)
    os.read(reader, 1)
    try:
        assert owner_of(tmp_path, AttemptKey("slurm", "9", 0)).attempt_key == "slurm:8:0"
    finally:
        os.write(let_end, b"x")
        os.waitpid(child, 0)
    assert owner_of(tmp_path, AttemptKey("slurm", "9", 0)) is None


def test_a_released_folder_names_nobody(tmp_path: Path) -> None:
    ownership = claim(tmp_path, AttemptKey("local", "5", 0))
    assert ownership is not None
    assert json.loads((tmp_path / ".owner").read_text())["pid"] == os.getpid()
    ownership.release()
    assert (tmp_path / ".owner").read_text() == ""


def _replace_owner(folder: Path) -> int:
    """Put another process's locked file in the place of `.owner`, as a restored backup does."""
    new = folder / ".owner.new"
    new.write_text(json.dumps({"host": "elsewhere", "pid": 4, "attempt_key": "local:9:0"}))
    descriptor = os.open(new, os.O_RDWR)
    assert try_lock(descriptor)
    new.replace(folder / ".owner")
    return descriptor


def _is_locked(folder: Path) -> bool:
    descriptor = os.open(folder / ".owner", os.O_RDONLY)
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
