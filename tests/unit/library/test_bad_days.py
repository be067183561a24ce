"""A bad day costs words at most: never a step, and never the record of the end."""

from pathlib import Path

import pytest

from tests.unit.library.ends import WITH, end_by
from tests.unit.library.looking import read_metadata, read_progress, read_sentinel, read_snapshot
from tests.unit.library.processes import Script, Starter, eventually
from trainwarden.record.document import Unreadable


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
        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        number = 0
        while count < 200:
            number += 1
            run.step(number)
            run.phase("eval" if number % 2 else "train")
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
