"""A full or failing disk never costs a step, nor the record of the end."""

import signal
from pathlib import Path

import pytest

from tests.unit.library.ends import WITH, end_by
from tests.unit.library.looking import read_metadata, read_progress, read_sentinel, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Script, Starter, line
from tests.waiting import wait_until
from trainwarden.record.document import Unreadable

pytestmark = pytest.mark.process


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
            patched.setattr("trainwarden.record.store.replace_file", full)
            run.step(1)
            wait_until(lambda: run.write_errors >= 2)
        wait_until((folder / "progress.json").exists)
    assert read_progress(folder).step == 1
    assert read_metadata(folder).write_errors >= 2
    assert [record.message for record in caplog.records if "No space left" in record.message]


def test_a_signal_handler_that_calls_back_in_does_not_block(script: Script) -> None:
    done = script.run("""
        import signal, trainwarden
        run = trainwarden.run("r")
        count = 0
        def again(*_):
            global count
            count += 1
            run.step(10**6 + count)
            run.phase("train")
            run.epoch(count)
            run.note("again", count=count)
            run.error(ValueError("again"))
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        number = 0
        while count < 200:
            number += 1
            run.step(number)
            run.phase("eval" if number % 2 else "train")
            run.epoch(number)
            run.note("once", number=number)
            run.error(ValueError("once"))
        signal.setitimer(signal.ITIMER_REAL, 0)
        run.step(10**7)
    """)
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.progress.step) == ("succeeded", 10**7)


def test_a_million_character_message_and_a_deep_recursion_are_recorded(script: Script) -> None:
    _, record = end_by(script, WITH, "raise ValueError('x' * 10**6)")
    assert len(record.error.message) <= 4000
    _, record = end_by(script, WITH, "f = lambda: f(); f()", TRAINWARDEN_RUN_ID="r")
    assert record.error.exception_type == "RecursionError"
    assert not isinstance(read_sentinel(script.folder / "_error"), Unreadable)


def test_an_end_without_memory_is_still_recorded(script: Script) -> None:
    """The limit falls in mid-training: from then on nothing large can be had, and no module loaded."""
    end = """
        import resource
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 2048, resource.RLIM_INFINITY))
        bytearray(100_000_000)
    """.replace("\n        ", "\n" + 8 * " ")
    done, record = end_by(script, WITH, end.strip())
    assert done.returncode == 1
    assert (record.state, record.error.error_type) == ("failed", "host_oom")
    assert "batch size" in record.error.hint


def test_a_folder_that_becomes_read_only_costs_nothing_but_words(script: Script) -> None:
    """As a user whom permissions bind; the thread goes on trying, and the end is recorded once it may be again."""
    done = script.run("""
        import os, tempfile, time, trainwarden
        with tempfile.TemporaryDirectory() as runs:
            trainwarden.run("r", dir=runs).__exit__(None, None, None)  # loads what it needs while it may read all files
        with tempfile.TemporaryDirectory(dir="/tmp") as runs:
            if os.geteuid() == 0:
                os.chown(runs, 65534, 65534)
                os.seteuid(65534)
            with trainwarden.run("r", dir=runs) as run:
                run.step(1)
                for folder in (run.folder / "ranks", run.folder):
                    folder.chmod(0o500)
                while run.write_errors < 3:
                    run.step(2)
                    run.phase("eval")
                    run.phase("train")
                    time.sleep(0.01)
                for folder in (run.folder, run.folder / "ranks"):
                    folder.chmod(0o700)
                run.step(3)
            print((run.folder / "progress.json").read_text(), (run.folder / "_complete").exists())
    """)
    assert done.returncode == 0, done.stderr
    assert '"step": 3' in done.stdout
    assert done.stdout.endswith("True\n")


def test_an_end_that_no_disk_takes_is_reported_with_all_that_is_lost(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read_only(*_args: object, **_values: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched, attempt() as run:
        patched.setattr("trainwarden.record.store.replace_file", read_only)
        run.step(7)
        wait_until(lambda: run.write_errors >= 2)
    assert read_metadata(folder).status == "running"
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    for part in (str(folder), "status succeeded", "step 7", "metadata.json", "running", "Read-only file system"):
        assert part in said


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_is_set_does_not_hide_that_the_run_lives_and_moves(script: Script, jump: int) -> None:
    done = script.run(f"""
        import json, time, trainwarden
        from trainwarden.record.metadata import read_metadata
        from trainwarden.record.progress import read_progress
        from trainwarden.record.rank import read_rank
        from trainwarden.training import rank_publisher, writer
        real, ahead = time.time, 0
        time.time = lambda: real() + ahead
        writer.LIVENESS_SECONDS = rank_publisher.LIVENESS_SECONDS = 0
        with trainwarden.run("r") as run:
            run.step(1, tokens=1000)
            while not (run.folder / "progress.json").exists():
                time.sleep(0.01)
            ahead = {jump}
            run.step(2, tokens=1000)
            def is_set(then):
                return abs(then - time.time()) < 60
            while not is_set(read_metadata(run.folder).last_update) or read_progress(run.folder).step != 2:
                time.sleep(0.01)
            while not is_set(read_rank(run.folder, 0).time):
                time.sleep(0.01)
            said, moved, rank = read_metadata(run.folder), read_progress(run.folder), read_rank(run.folder, 0)
            now = time.time()
            times = [said.last_update, said.attempt_start_time, said.phase_time, rank.time]
            times += [moved.last_updated, moved.step_time, moved.moved_time]
            assert all(then <= now for then in times), (now, times)
            assert said.attempt_start_time <= said.last_update
            assert now - moved.step_time < 60
            assert (moved.tokens_per_second or 0) >= 0
        assert read_metadata(run.folder).end_time >= read_metadata(run.folder).attempt_start_time
        assert (json.loads((run.folder / "summary.json").read_text())["training"]["duration_seconds"] or 0) >= 0
    """)
    assert done.returncode == 0, done.stderr
    assert read_snapshot(script.folder).state == "succeeded"


def test_text_that_is_not_utf_8_is_recorded_all_the_same(script: Script, tmp_path: Path) -> None:
    done = script.run(
        """
        import os, sys, trainwarden
        odd = os.fsdecode(b"caf\\xe9")
        sys.argv = [odd]
        checkpoint = os.environ["CHECKPOINTS"] + "/" + odd
        with open(checkpoint, "wb") as file:
            file.write(b"weights")
        with trainwarden.run("r", model=odd, framework=odd) as run:
            run.step(1, text=odd, **{odd: 1.0})
            run.phase(odd)
            run.note(odd, **{odd: odd})
            run.error(ValueError(odd), **{odd: odd})
            run.checkpoint_saved(checkpoint)
            run.checkpoint_saved(os.fsencode(checkpoint))
        trainwarden.run("r", model=odd)
        assert trainwarden.resume_checkpoint() == checkpoint
        raise RuntimeError(odd)
    """,
        CHECKPOINTS=str(tmp_path),
    )
    assert done.returncode == 1
    assert "RuntimeError: caf" in done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.error.message, record.metadata.model) == ("failed", "caf?", "caf?")
    assert record.unreadable == ()
    for name in ("events.jsonl", "errors.jsonl", "summary.json"):
        (script.folder / name).read_bytes().decode("ascii")


def test_an_attempt_that_dies_late_does_not_stain_its_successor(script: Script, tmp_path: Path) -> None:
    """Its node came back: no lock tells it that another has begun."""
    old = script.start(
        """
        import sys, trainwarden
        with trainwarden.run("r") as run:
            run.step(1)
            print("runs", flush=True)
            sys.stdin.readline()
            raise MemoryError("of the old one")
        """,
        TRAINWARDEN_ATTEMPT_KEY="local:5:0",
    )
    assert line(old.stdout) == "runs\n"
    # Else it would take its lock again.
    old.send_signal(signal.SIGSTOP)
    (script.folder / ".owner").unlink()
    new = script.start(
        """
        import sys, trainwarden
        with trainwarden.run("r") as run:
            run.step(2)
            print("runs", flush=True)
            sys.stdin.readline()
        """,
        TRAINWARDEN_ATTEMPT_KEY="local:5:1",
    )
    assert line(new.stdout) == "runs\n"
    old.send_signal(signal.SIGCONT)
    old.communicate("\n", timeout=DEADLINE_SECONDS)
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.attempt, record.error) == ("running", 1, None)
    assert read_sentinel(script.folder / "_error.0").message == "of the old one"
    new.communicate("\n", timeout=DEADLINE_SECONDS)
    assert read_snapshot(script.folder).state == "succeeded"
