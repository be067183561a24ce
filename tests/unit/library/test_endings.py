"""Every end leaves the right record: real processes, real signals."""

import signal
import subprocess
from typing import Any

import pytest

from tests.unit.library.looking import read_sentinel, read_snapshot
from tests.unit.library.processes import Script, line
from trainwarden.record.document import Unreadable
from trainwarden.record.sentinels import announce_restart

KEY = "local:77:0"

WITH = """
    import os, signal, sys, time, trainwarden
    with trainwarden.run("r", total_steps=3) as run:
        for number in (1, 2, 3):
            run.step(number, loss=0.5)
        {end}
"""
WITHOUT = """
    import os, signal, sys, time, trainwarden
    run = trainwarden.run("r", total_steps=3)
    for number in (1, 2, 3):
        trainwarden.step(number, loss=0.5)
    {end}
"""
STYLES = pytest.mark.parametrize("style", [pytest.param(WITH, id="with"), pytest.param(WITHOUT, id="without with")])


def _end(script: Script, style: str, end: str, **environment: str) -> "tuple[subprocess.CompletedProcess[str], Any]":
    done = script.run(style.format(end=end), **environment)
    return done, read_snapshot(script.folder)


@STYLES
@pytest.mark.parametrize("end", ["pass", "sys.exit()", "sys.exit(0)"])
def test_a_normal_end_is_success(script: Script, style: str, end: str) -> None:
    done, record = _end(script, style, end)
    assert (done.returncode, record.state, record.metadata.status) == (0, "succeeded", "succeeded")
    assert record.metadata.phase == "done"
    assert record.metadata.end_time is not None
    assert record.completion.step == record.progress.step == 3
    assert record.error is None


@STYLES
def test_an_exception_is_a_failure_with_its_message_trace_and_hint(script: Script, style: str) -> None:
    done, record = _end(script, style, 'raise FloatingPointError("loss is NaN at step 3")')
    assert done.returncode == 1
    assert "FloatingPointError: loss is NaN at step 3" in done.stderr
    assert (record.state, record.metadata.status) == ("failed", "failed")
    assert record.metadata.reason == "loss is NaN at step 3"
    error = record.error
    assert (error.message, error.exception_type) == ("loss is NaN at step 3", "FloatingPointError")
    assert (error.error_type, error.failure, error.rank) == ("numerical_instability", "numeric", 0)
    assert "Traceback" in error.traceback
    assert "learning rate" in error.hint
    assert error.attempt_key == record.metadata.attempt_key
    assert record.completion is None
    assert record.progress.step == 3


@STYLES
@pytest.mark.parametrize(
    ("end", "status", "slug"),
    [
        ("sys.exit(1)", 1, "nonzero_exit"),
        ("sys.exit(93)", 93, "launcher_stop"),
        ("sys.exit('no data')", 1, "nonzero_exit"),
        ("exit(1)", 1, "nonzero_exit"),
        ("quit('no data')", 1, "nonzero_exit"),
    ],
)
def test_an_exit_status_is_a_failure_that_keeps_it(
    script: Script, style: str, end: str, status: int, slug: str
) -> None:
    done, record = _end(script, style, end)
    assert done.returncode == status
    assert (record.state, record.error.failure, record.error.exit_code) == ("failed", slug, status)


@STYLES
def test_an_interrupt_is_a_cancellation(script: Script, style: str) -> None:
    _, record = _end(script, style, "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)")
    assert (record.state, record.metadata.reason, record.error) == ("cancelled", "SIGINT", None)


@STYLES
def test_sigterm_is_a_cancellation_and_still_kills(script: Script, style: str) -> None:
    done, record = _end(script, style, "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)")
    assert done.returncode == -signal.SIGTERM
    assert (record.state, record.metadata.reason, record.error) == ("cancelled", "SIGTERM", None)
    assert record.progress.step == 3


def test_sigterm_of_an_announced_restart_is_a_cancellation_for_that_reason(script: Script) -> None:
    announce_restart(script.folder, KEY, "stalled", "intent-1")
    _, record = _end(script, WITH, "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert (record.state, record.metadata.reason) == ("cancelled", "restart")


def test_an_announcement_for_another_attempt_is_none_for_this_one(script: Script) -> None:
    announce_restart(script.folder, "local:76:0", "stalled", "intent-1")
    _, record = _end(script, WITH, "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert record.metadata.reason == "SIGTERM"


def test_a_connection_that_breaks_because_of_an_announced_restart_is_no_failure(script: Script) -> None:
    announce_restart(script.folder, KEY, "stalled", "intent-1")
    _, record = _end(script, WITH, "raise ConnectionResetError(104, 'reset')", TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert (record.state, record.metadata.reason, record.error) == ("cancelled", "restart", None)


def test_a_rank_that_is_ended_because_another_failed_does_not_turn_failure_into_cancellation(script: Script) -> None:
    other = """
        import trainwarden
        with trainwarden.run("r"):
            raise MemoryError("on the other rank")
    """
    first = script.start(
        WITH.format(end="print('ready', flush=True); time.sleep(30)"), TRAINWARDEN_ATTEMPT_KEY=KEY, WORLD_SIZE="2"
    )
    assert line(first.stdout) == "ready\n"
    script.run(other, TRAINWARDEN_ATTEMPT_KEY=KEY, RANK="1", WORLD_SIZE="2")
    first.terminate()
    first.wait()
    record = read_snapshot(script.folder)
    assert (record.metadata.status, record.metadata.reason) == ("failed", "on the other rank")
    assert (record.error.rank, record.error.error_type) == (1, "host_oom")


def test_success_of_rank_0_does_not_hide_the_failure_of_another(script: Script) -> None:
    record_failure = f"""
        from pathlib import Path
        from trainwarden.record.sentinels import record_failure
        from trainwarden.taxonomy import FAILURES
        record_failure(Path({str(script.folder)!r}), key={KEY!r}, failure=FAILURES["killed"], message="gone")
    """
    script.run(record_failure)
    _, record = _end(script, WITH, "pass", TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert (record.metadata.status, record.completion) == ("failed", None)


def test_other_ranks_write_neither_metadata_nor_progress(script: Script) -> None:
    done, _ = _end(script, WITH, "pass", RANK="1", WORLD_SIZE="2")
    assert done.returncode == 0
    assert sorted(path.name for path in (script.folder).iterdir()) == ["ranks"]
    assert script.read("ranks/1.json")["step"] == 3


def test_kill_9_leaves_no_false_success(script: Script) -> None:
    _, record = _end(script, WITH, "os.kill(os.getpid(), signal.SIGKILL)")
    assert (record.state, record.completion, record.error) == ("running", None, None)
    assert record.metadata.end_time is None


def test_the_handler_that_was_there_before_is_called_and_decides(script: Script) -> None:
    done = script.run("""
        import os, signal, trainwarden
        seen = []
        signal.signal(signal.SIGTERM, lambda *_: seen.append("saved"))
        with trainwarden.run("r", total_steps=9):
            trainwarden.step(1)
            os.kill(os.getpid(), signal.SIGTERM)
            trainwarden.step(2)
        print(seen)
        print(signal.getsignal(signal.SIGTERM).__name__)
    """)
    assert done.stdout == "['saved']\n<lambda>\n"
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason, record.progress.step) == ("cancelled", "SIGTERM", 2)


def test_a_handler_that_was_put_over_ours_decides_how_the_process_ends(script: Script) -> None:
    done = script.run("""
        import os, signal, trainwarden
        with trainwarden.run("r", total_steps=9):
            ours = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *seen: ours(*seen))
            os.kill(os.getpid(), signal.SIGTERM)
            trainwarden.step(2)
            print("saved")
    """)
    assert (done.returncode, done.stdout) == (0, "saved\n")
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason, record.progress.step) == ("cancelled", "SIGTERM", 2)


def test_an_end_by_lightnings_exception_for_sigterm_is_no_success(script: Script) -> None:
    script.run("""
        import trainwarden
        class SIGTERMException(SystemExit):
            pass
        with trainwarden.run("r"):
            raise SIGTERMException
    """)
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == ("cancelled", "SIGTERM")


def test_an_exit_that_somebody_caught_is_no_end(script: Script) -> None:
    done = script.run("""
        import sys, trainwarden
        trainwarden.run("r")
        try:
            sys.exit(3)
        except SystemExit:
            pass
        trainwarden.step(1)
    """)
    assert done.returncode == 0
    assert read_snapshot(script.folder).state == "succeeded"


EXITS = pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit(3)",
        "raise SystemExit('the configuration is broken')",
        "leave(3)",
        "sys.excepthook = print; raise ValueError",
        "import threading; t = threading.Thread(target=sys.exit); t.start(); t.join(); raise SystemExit(3)",
    ],
)


@EXITS
@pytest.mark.parametrize("total", ["None", "100"])
def test_an_exit_that_is_not_known_to_be_a_success_is_never_recorded_as_one(
    script: Script, end: str, total: str
) -> None:
    done = script.run(f"""
        import sys, trainwarden
        from sys import exit as leave
        trainwarden.run("r", total_steps={total})
        trainwarden.step(1)
        {end}
    """)
    assert done.returncode != 0
    record = read_snapshot(script.folder)
    assert (record.metadata.status, record.completion) == ("failed" if "ValueError" in end else "cancelled", None)
    assert record.metadata.reason


def test_a_main_that_returns_its_status_after_the_last_step_is_success(script: Script) -> None:
    _, record = _end(script, WITHOUT, "raise SystemExit(None)")
    assert (record.state, record.metadata.reason, record.completion.step) == ("succeeded", None, 3)


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit(0)"])
def test_a_success_before_the_last_step_says_so(script: Script, end: str) -> None:
    script.run(f"""
        import sys, trainwarden
        with trainwarden.run("r", total_steps=100) as run:
            run.step(60)
            {end}
    """)
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == ("succeeded", "ended at step 60 of 100")


def test_hooks_are_gone_after_the_run(script: Script) -> None:
    done = script.run("""
        import signal, sys, trainwarden
        def hooks():
            return sys.exit, type(exit).__call__, sys.excepthook, signal.getsignal(signal.SIGTERM)
        before = hooks()
        with trainwarden.run("r"):
            assert all(now != then for now, then in zip(hooks(), before))
        assert before == hooks()
    """)
    assert done.returncode == 0, done.stderr


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
    _, record = _end(script, WITH, "raise ValueError('x' * 10**6)")
    assert len(record.error.message) <= 4000
    _, record = _end(script, WITH, "f = lambda: f(); f()", TRAINWARDEN_RUN_ID="r")
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
    done, record = _end(script, WITH, end.strip())
    assert done.returncode == 1
    assert (record.state, record.error.error_type) == ("failed", "host_oom")
    assert "batch size" in record.error.hint


@pytest.mark.parametrize("how", ["os.fork()", "multiprocessing"])
def test_a_forked_child_writes_nothing_whatever_it_does(script: Script, how: str) -> None:
    child = {
        "os.fork()": "pid = os.fork()\n    if pid == 0: work(); raise RuntimeError\n    os.waitpid(pid, 0)",
        "multiprocessing": "p = multiprocessing.get_context('fork').Process(target=work); p.start(); p.join()",
    }[how]
    done = script.run(
        "import multiprocessing, os, trainwarden\n"
        "def work() -> None:\n"
        "    trainwarden.step(999); run.step(999); run.phase('eval'); run.checkpoint_saved('/x', 999)\n"
        "with trainwarden.run('r') as run:\n"
        "    run.step(1)\n"
        f"    {child}\n"
        "    run.step(2)\n"
    )
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.progress.step, record.error, record.progress.checkpoint) == (
        "succeeded",
        2,
        None,
        None,
    )


def test_a_forked_child_dies_of_sigterm_without_a_word(script: Script) -> None:
    done = script.run("""
        import os, signal, time, trainwarden
        with trainwarden.run("r") as run:
            ready, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.write(tell, b"x")
                time.sleep(30)
                os._exit(0)
            os.read(ready, 1)
            os.kill(pid, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)
    assert done.stdout == f"{-signal.SIGTERM}\n"
    assert read_snapshot(script.folder).state == "succeeded"


def test_a_signal_during_the_last_word_does_not_lose_it(script: Script) -> None:
    done = script.run("""
        import os, signal, threading, time, trainwarden
        from trainwarden.training import writer
        slow = writer.record_completion
        def interrupted(*args, **values):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
            slow(*args, **values)
        writer.record_completion = interrupted
        with trainwarden.run("r"):
            trainwarden.step(1)
        time.sleep(30)
    """)
    assert done.returncode == -signal.SIGTERM
    assert read_snapshot(script.folder).state == "succeeded"
    assert (script.folder / "_complete").exists()
