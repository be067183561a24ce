"""A crash of the interpreter is recorded as one, and nothing else is."""

import json
import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.library.looking import read_metadata, read_sentinel, read_snapshot
from tests.unit.library.processes import Script, line
from tests.users import NOBODY, needs_root
from trainwarden.identity import process_start_ticks
from trainwarden.record.crash import HEADER_BYTES, crash_of

KEY = "local:5:0"
CRASH = """
    import ctypes, trainwarden
    def train_one_step():
        ctypes.string_at(0)
    with trainwarden.run("r") as run:
        run.step(1)
        train_one_step()
"""
# Where faulthandler writes, as the process itself sees it.
OUTPUT = "[one for one in __import__('gc').get_referents(faulthandler) if hasattr(one, 'fileno')][-1]"
FATAL = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"


def _crash(script: Script, **environment: str) -> Any:
    done = script.run(CRASH, TRAINWARDEN_ATTEMPT_KEY=KEY, **environment)
    assert done.returncode == -signal.SIGSEGV
    return read_snapshot(script.folder)


@pytest.mark.process
def test_whoever_looks_next_takes_the_attempt_for_failed_and_sees_where(script: Script) -> None:
    record = _crash(script)
    assert (record.metadata.status, record.state) == ("running", "failed")
    error = record.error
    assert (error.failure, error.rank, error.exit_code) == ("crash_signal", 0, 128 + signal.SIGSEGV)
    assert error.message.startswith("rank 0 crashed in __init__.py:")
    assert error.message.endswith("(string_at): Segmentation fault")
    assert "in train_one_step" in error.traceback
    assert error.attempt_key == KEY


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("os.abort()", "Aborted"),
        ("signal.raise_signal(signal.SIGBUS)", "Bus error"),
        ("signal.raise_signal(signal.SIGFPE)", "Floating"),
        ("signal.raise_signal(signal.SIGILL)", "Illegal instruction"),
    ],
)
def test_every_fatal_signal_is_a_crash(script: Script, code: str, cause: str) -> None:
    script.run(f"""
        import os, signal, trainwarden
        trainwarden.run("r")
        {code}
    """)
    record = read_snapshot(script.folder)
    assert (record.state, record.error.failure) == ("failed", "crash_signal")
    assert cause in record.error.message
    assert record.error.exit_code > 128


@pytest.mark.process
def test_the_next_attempt_records_it_for_the_one_that_could_not(script: Script) -> None:
    before = _crash(script).error
    script.run("import trainwarden; trainwarden.run('r')", TRAINWARDEN_ATTEMPT_KEY="local:5:1")
    error = read_sentinel(script.folder / "_error.0")
    assert (error.failure, error.attempt, error.attempt_key) == ("crash_signal", 0, KEY)
    assert (error.message, error.traceback, error.host) == (before.message, before.traceback, before.host)
    assert error.time == pytest.approx(before.time, abs=1e-3)
    record = read_snapshot(script.folder)
    assert (record.state, record.error) == ("succeeded", None)
    assert list((script.folder / "ranks").glob("*.trace*")) == []


@pytest.mark.process
def test_a_rank_that_starts_before_rank_0_leaves_the_old_trace_for_it(script: Script) -> None:
    both = {"WORLD_SIZE": "2", "TRAINWARDEN_ATTEMPT_KEY": KEY}
    first = script.start("import time, trainwarden; trainwarden.run('r'); print(1, flush=True); time.sleep(60)", **both)
    assert line(first.stdout) == "1\n"
    assert script.run(CRASH, RANK="1", **both).returncode == -signal.SIGSEGV
    # Rank 0 still lives, and waits for the one that is gone.
    assert (read_snapshot(script.folder).state, read_snapshot(script.folder).error.rank) == ("failed", 1)
    first.kill()
    first.wait()
    both["TRAINWARDEN_ATTEMPT_KEY"] = "local:5:1"
    script.run("import trainwarden; trainwarden.run('r')", RANK="1", **both)
    assert read_snapshot(script.folder).state == "failed"
    script.run("import trainwarden; trainwarden.run('r')", **both)
    assert read_sentinel(script.folder / "_error.0").rank == 1
    assert read_snapshot(script.folder).state == "succeeded"


@pytest.mark.process
def test_a_second_start_under_the_same_key_drops_the_crash(script: Script) -> None:
    _crash(script)
    script.run("import trainwarden; trainwarden.run('r')", TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert read_snapshot(script.folder).state == "succeeded"
    assert not (script.folder / "_error.0").exists()


@pytest.mark.process
def test_a_rank_that_is_ended_because_its_neighbour_crashed_shows_it(script: Script) -> None:
    both = {"WORLD_SIZE": "2", "TRAINWARDEN_ATTEMPT_KEY": KEY}
    first = script.start("import time, trainwarden; trainwarden.run('r'); print(1, flush=True); time.sleep(60)", **both)
    assert line(first.stdout) == "1\n"
    script.run(CRASH, RANK="1", **both)
    first.terminate()
    first.wait()
    record = read_snapshot(script.folder)
    assert (record.metadata.status, record.error.failure) == ("failed", "crash_signal")
    assert "rank 1 crashed" in record.error.message
    assert "train_one_step" in record.error.traceback


@pytest.mark.process
@pytest.mark.parametrize("end", ["pass", "raise ValueError", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_an_orderly_end_leaves_no_trace(script: Script, end: str) -> None:
    done = script.run(f"""
        import faulthandler, os, signal, trainwarden
        with trainwarden.run("r") as run:
            assert faulthandler.is_enabled()
            assert (run.folder / "ranks" / "0.trace").stat().st_size == {HEADER_BYTES}
            {end}
        assert not faulthandler.is_enabled()
    """)
    assert done.returncode == {"pass": 0, "raise ValueError": 1}.get(end, -signal.SIGTERM), done.stderr
    assert not (script.folder / "ranks" / "0.trace").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    "when", ["-X", "before", "during"], ids=["by the interpreter", "as torchelastic's @record does", "in the run"]
)
def test_a_crash_is_recorded_although_the_program_has_enabled_faulthandler(script: Script, when: str) -> None:
    done = script.run(
        f"""
        import ctypes, faulthandler, sys, trainwarden
        from tests.waiting import wait_until
        if {when == "before"}:
            faulthandler.enable(all_threads=True)
        run = trainwarden.run("r")
        if {when == "during"}:
            faulthandler.enable(all_threads=True)
            wait_until(lambda: {OUTPUT} is not sys.stderr)
        def train_one_step():
            ctypes.string_at(0)
        train_one_step()
        """,
        **({"PYTHONFAULTHANDLER": "1"} if when == "-X" else {}),
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.error.failure) == ("failed", "crash_signal")
    assert "train_one_step" in record.error.traceback


@pytest.mark.process
@pytest.mark.parametrize("enable", ["", "faulthandler.enable(mine)", "faulthandler.enable(mine.fileno())"])
@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_programs_own_faulthandler_is_as_it_was_after_the_run(script: Script, enable: str, before: bool) -> None:
    """By a crash after the run: its trace is where the program wants it, or nowhere."""
    done = script.run(f"""
        import ctypes, faulthandler, trainwarden
        mine = open("{script.runs.parent}/mine", "w")
        {enable if before else ""}
        with trainwarden.run("r") as run:
            run.step(1)
            {enable if not before else ""}
        ctypes.string_at(0)
    """)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    mine = (script.runs.parent / "mine").read_text()
    assert ("Segmentation fault" in mine) == bool(enable)
    assert read_snapshot(script.folder).state == "succeeded"
    assert list((script.folder / "ranks").glob("*.trace")) == []


@pytest.mark.process
def test_where_the_program_has_given_a_number_a_crash_is_written_there(script: Script) -> None:
    done = script.run("import faulthandler; faulthandler.enable(2)\n" + textwrap.dedent(CRASH))
    assert "train_one_step" in done.stderr
    assert not (script.folder / "ranks" / "0.trace").exists()
    assert read_snapshot(script.folder).state == "running"


@pytest.mark.process
def test_a_program_that_disables_faulthandler_has_none(script: Script) -> None:
    done = script.run("""
        import faulthandler, trainwarden
        with trainwarden.run("r") as run:
            faulthandler.disable()
            for step in range(3):
                run.step(step)
                run.phase(["eval", "train", "eval"][step])
        assert not faulthandler.is_enabled()
    """)
    assert done.returncode == 0, done.stderr


CLOSING = """
    import ctypes, faulthandler, gc, os, resource, threading, trainwarden
    from tests.waiting import wait_until
    from trainwarden.training.recorder import RecordThread
    # The thread of the record must not be in the middle of writing: the number of its file would be the program's next.
    between_rounds, may_go_on, wait = threading.Event(), threading.Event(), RecordThread._wait
    def wait_here(thread):
        between_rounds.set()
        may_go_on.wait()
        wait(thread)
    RecordThread._wait = wait_here
    run = trainwarden.run("r")
    run.step(1)
    between_rounds.wait()
    # A daemon closes what it did not open, and its program then opens files, here under the numbers of the library's.
    top = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    names = os.listdir("/proc/self/fd")
    held = {int(name) for name in names if os.path.realpath(f"/proc/self/fd/{name}").endswith((".owner", "0.trace"))}
    assert len(held) == 2
    os.closerange(3, top)
    files = [open(os.path.join(os.environ["MINE"], str(number)), "w") for number in range(9)]
    for number in held:
        os.dup2(files[0].fileno(), number)
    may_go_on.set()
"""


@pytest.mark.process
def test_after_the_program_has_closed_all_files_its_own_stay_open_and_empty(script: Script) -> None:
    (mine := script.runs.parent / "mine").mkdir()
    done = script.run(
        textwrap.dedent(CLOSING)
        + textwrap.dedent("""
        run.__exit__(None, None, None)
        for number in (*held, *(file.fileno() for file in files)):
            os.fstat(number)
        assert not faulthandler.is_enabled()
        for file in files:
            file.write("x")
            file.close()
        """),
        MINE=str(mine),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.read_text() for path in mine.iterdir()} == {"x"}
    assert read_snapshot(script.folder).state == "succeeded"


@pytest.mark.process
def test_after_the_program_has_closed_all_files_a_crash_is_recorded_and_not_written_into_one(script: Script) -> None:
    (mine := script.runs.parent / "mine").mkdir()
    done = script.run(
        textwrap.dedent(CLOSING)
        + textwrap.dedent("""
        trace = str(run.folder / "ranks" / "0.trace")
        links = lambda: [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        wait_until(lambda: trace in links())
        run.phase("eval")
        wait_until(lambda: "eval" in (run.folder / "metadata.json").read_text())
        ctypes.string_at(0)
        """),
        MINE=str(mine),
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert {path.read_text() for path in mine.iterdir()} == {""}
    record = read_snapshot(script.folder)
    assert (record.state, record.error.failure) == ("failed", "crash_signal")


@pytest.mark.process
def test_the_crash_of_a_forked_worker_is_not_its_parents(script: Script) -> None:
    done = script.run("""
        import ctypes, multiprocessing, trainwarden
        with trainwarden.run("r") as run:
            worker = multiprocessing.get_context("fork").Process(target=ctypes.string_at, args=(0,))
            worker.start()
            worker.join()
            print(worker.exitcode, (run.folder / "ranks" / "0.trace").stat().st_size)
    """)
    assert done.stdout == f"{-signal.SIGSEGV} {HEADER_BYTES}\n"
    assert read_snapshot(script.folder).state == "succeeded"


def _leave_trace(folder: Path, text: str, *, key: str = KEY, pid: int = 2**22, host: str | None = None) -> None:
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    header = f"attempt_key={key} pid={pid} start={process_start_ticks(pid) or 0} host={host or os.uname().nodename}"
    (folder / "ranks" / "0.trace").write_text(header.ljust(HEADER_BYTES - 1) + "\n" + text)


def folder_in(tmp_path: Path) -> Path:
    folder = tmp_path / "r"
    folder.mkdir()
    metadata = {"status": "running", "attempt_key": KEY, "attempts": [{"attempt": 0, "key": KEY}]}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_in(tmp_path)


@pytest.mark.parametrize("host", [None, "elsewhere"])
def test_the_trace_of_a_process_that_is_gone_or_of_another_host_counts(folder: Path, host: str | None) -> None:
    _leave_trace(folder, FATAL + '  File "/a/train.py", line 3 in f\n', host=host)
    assert read_snapshot(folder).error.message == "rank 0 crashed in train.py:3 (f): Segmentation fault"


@cases(
    ("text", "options"),
    [
        ("", {}),
        ("Timeout (0:00:01)!\nThread 0x1 (most recent call first):\n" + "  File\n" * 200, {}),
        (FATAL, {"key": "local:4:0"}),
        (FATAL, {"pid": os.getpid()}),
    ],
    ids=["a first line alone", "a trace that was asked for", "another attempt", "a process that lives"],
    folder=folder_in,
)
def test_no_other_trace_is_a_crash(folder: Path, text: str, options: dict[str, Any]) -> None:
    _leave_trace(folder, text, **options)
    assert read_snapshot(folder).state == "running"


@needs_root
def test_a_trace_that_takes_the_place_of_a_users_own_is_not_read_for_that_user(folder: Path, tmp_path: Path) -> None:
    """A user who swaps the folder of ranks for a link to another's, after the files in it were looked at."""
    _leave_trace(tmp_path / "victim", FATAL + '  File "/secret/place.py", line 3 in f\n')
    _leave_trace(folder, FATAL)
    os.chown(folder / "ranks/0.trace", NOBODY, NOBODY)

    def swap(cost: int) -> bool:
        if cost < 64:  # to read a trace, and not to look at names
            (folder / "ranks").rename(folder / "mine")
            (folder / "ranks").symlink_to(tmp_path / "victim/ranks")
        return True

    assert crash_of(folder, read_metadata(folder), NOBODY, lambda _: True) is not None
    assert crash_of(folder, read_metadata(folder), NOBODY, swap, ["0.trace"]) is None
    assert (folder / "ranks").is_symlink()


def test_an_end_that_the_attempt_recorded_counts_more(folder: Path) -> None:
    _leave_trace(folder, FATAL)
    (folder / "metadata.json").write_text(json.dumps({"status": "cancelled", "attempt_key": KEY}))
    assert read_snapshot(folder).state == "cancelled"


@cases(
    "content",
    [b"", b"\n" * 600, b"\xff" * 2000, FATAL.encode() * 20, b"pid=x start=y\n" + b"x" * 600],
    folder=folder_in,
)
def test_a_damaged_trace_is_no_crash(folder: Path, content: bytes) -> None:
    (folder / "ranks").mkdir()
    (folder / "ranks" / "0.trace").write_bytes(content)
    (folder / "ranks" / "x.trace").write_bytes(FATAL.encode() * 20)
    (folder / "ranks" / "1.trace").mkdir()
    (folder / "ranks" / "2.trace").symlink_to("/dev/zero")
    assert crash_of(folder, read_metadata(folder)) is None


def test_a_folder_that_takes_no_trace_keeps_no_training_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "r" / "ranks" / "0.trace").mkdir(parents=True)
    monkeypatch.setattr("faulthandler.is_enabled", lambda: False)
    with trainwarden.run("r", dir=tmp_path) as run:
        run.step(1)
    assert read_snapshot(tmp_path / "r").state == "succeeded"
    assert "could not be traced" in caplog.text
