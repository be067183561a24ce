"""Signals that end a process, or warn it: real processes, real signals."""

import signal
import time

import pytest

from tests.unit.library.ends import KEY, STYLES, WITH, end_by
from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script, line
from trainwarden.record.store import RecordStore
from trainwarden.training.termination import signal_reason

pytestmark = pytest.mark.process

TERM = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)"
USR1 = "os.kill(os.getpid(), signal.SIGUSR1); time.sleep(30)"
FAR = 86400


def _slurm(seconds_left: float) -> dict[str, str]:
    return {"SLURM_JOB_ID": "9", "SLURM_JOB_END_TIME": str(int(time.time() + seconds_left))}


@STYLES
def test_an_interrupt_is_a_cancellation(script: Script, style: str) -> None:
    _, record = end_by(script, style, "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)")
    assert (record.state, record.metadata.reason, record.error) == ("cancelled", "SIGINT", None)


@STYLES
def test_sigterm_is_a_cancellation_and_still_kills(script: Script, style: str) -> None:
    done, record = end_by(script, style, TERM)
    assert done.returncode == -signal.SIGTERM
    assert (record.state, record.metadata.reason, record.error) == ("cancelled", "SIGTERM", None)
    assert record.progress.step == 3


def test_sigterm_of_an_announced_restart_is_a_cancellation_for_that_reason(script: Script) -> None:
    RecordStore(script.folder).announce_restart(KEY, "stalled", "intent-1")
    _, record = end_by(script, WITH, TERM, TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert (record.state, record.metadata.reason) == ("cancelled", "restart")


def test_an_announcement_for_another_attempt_is_none_for_this_one(script: Script) -> None:
    RecordStore(script.folder).announce_restart("local:76:0", "stalled", "intent-1")
    _, record = end_by(script, WITH, TERM, TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert record.metadata.reason == "SIGTERM"


def test_a_connection_that_breaks_because_of_an_announced_restart_is_no_failure(script: Script) -> None:
    RecordStore(script.folder).announce_restart(KEY, "stalled", "intent-1")
    _, record = end_by(script, WITH, "raise ConnectionResetError(104, 'reset')", TRAINWARDEN_ATTEMPT_KEY=KEY)
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


LATER = """
    import os, signal, sys, time, trainwarden
    told = []
    with trainwarden.run("r") as run:
        own = lambda *_: told.append("saved")
        before = signal.signal(signal.SIGTERM, own)
        while signal.getsignal(signal.SIGTERM) is own:
            time.sleep(0.01)
            run.step(1)
        {then}
"""


@pytest.mark.parametrize("then", ["sys.exit(0)", "pass"])
def test_a_handler_that_came_later_and_does_not_call_ours_makes_no_success(script: Script, then: str) -> None:
    done = script.run(LATER.format(then=f"os.kill(os.getpid(), signal.SIGTERM); assert told; {then}"))
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason, record.completion) == ("cancelled", "SIGTERM", None)


def test_whoever_brings_back_the_handler_that_he_found_finds_it_working(script: Script) -> None:
    done = script.run(LATER.format(then=f"signal.signal(signal.SIGTERM, before); {TERM}"))
    assert done.returncode == -signal.SIGTERM
    assert read_snapshot(script.folder).metadata.reason == "SIGTERM"


def test_a_signal_during_the_last_write_does_not_lose_it(script: Script) -> None:
    done = script.run("""
        import os, signal, threading, time, trainwarden
        from trainwarden.record.store import RecordStore
        slow = RecordStore.record_completion
        def interrupted(*args, **values):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
            slow(*args, **values)
        RecordStore.record_completion = interrupted
        with trainwarden.run("r"):
            trainwarden.step(1)
        time.sleep(30)
    """)
    assert done.returncode == -signal.SIGTERM
    assert read_snapshot(script.folder).state == "succeeded"
    assert (script.folder / "_complete").exists()


@STYLES
@pytest.mark.parametrize(
    ("end", "seconds_left", "reason"),
    [
        (TERM, 30, "time limit"),
        (TERM, -30, "time limit"),
        (TERM, FAR, "SIGTERM"),
        (USR1, 300, "time limit"),
        (USR1, FAR, "preempted"),
    ],
)
def test_what_slurm_warns_of_or_ends_is_cancelled_for_slurms_reason(
    script: Script, style: str, end: str, seconds_left: float, reason: str
) -> None:
    done, record = end_by(script, style.replace("total_steps=3", ""), end, **_slurm(seconds_left))
    assert done.returncode == -(signal.SIGTERM if end is TERM else signal.SIGUSR1)
    assert (record.state, record.metadata.reason, record.error, record.completion) == ("cancelled", reason, None, None)


def test_sigusr1_of_somebody_else_still_kills_and_is_recorded(script: Script) -> None:
    done, record = end_by(script, WITH, USR1)
    assert done.returncode == -signal.SIGUSR1
    assert (record.state, record.metadata.reason) == ("cancelled", "SIGUSR1")


def test_an_announced_restart_is_the_reason_whatever_the_clock_shows(script: Script) -> None:
    RecordStore(script.folder).announce_restart(KEY, "stalled", "intent-1")
    _, record = end_by(script, WITH, TERM, TRAINWARDEN_ATTEMPT_KEY=KEY, **_slurm(30))
    assert record.metadata.reason == "restart"


OWN_HANDLER = """
    import os, signal, sys, trainwarden
    seen = []
    def own(*_):
        seen.append("saved")
    signal.signal(signal.SIGUSR1, own)
    with trainwarden.run("r", total_steps=3) as run:
        run.step(1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == ["saved"]
        {then}
    assert signal.getsignal(signal.SIGUSR1) is own
"""


@pytest.mark.parametrize(
    ("then", "state", "reason"),
    [
        ("run.step(3)", "succeeded", None),
        ("run.step(2)", "cancelled", "preempted"),
        ("run.step(2); sys.exit(0)", "cancelled", "preempted"),
        ("run.step(2); raise ConnectionResetError", "cancelled", "preempted"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "cancelled", "preempted"),
    ],
)
def test_a_warning_that_the_training_heeds_itself_explains_an_early_end_and_no_other(
    script: Script, then: str, state: str, reason: str | None
) -> None:
    script.run(OWN_HANDLER.format(then=then), **_slurm(FAR))
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == (state, reason)


@pytest.mark.parametrize(
    ("then", "state", "reason"), [("pass", "cancelled", "SIGUSR1"), ("raise ValueError('x')", "failed", "x")]
)
def test_a_warning_that_cannot_be_distinguished_from_a_users_signal_makes_no_success_and_hides_no_failure(
    script: Script, then: str, state: str, reason: str
) -> None:
    script.run(OWN_HANDLER.format(then=then), SLURM_JOB_ID="9")
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == (state, reason)


def test_without_slurm_a_programs_own_sigusr1_is_no_sign_of_its_end(script: Script) -> None:
    done = script.run(OWN_HANDLER.format(then="assert signal.getsignal(signal.SIGUSR1) is own"))
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == ("succeeded", "ended at step 1 of 3")


def test_a_signal_that_native_code_handles_is_left_to_it(script: Script) -> None:
    """Python itself says that nobody handles it."""
    done = script.run("""
        import faulthandler, os, signal, sys, trainwarden
        for number in (signal.SIGUSR1, signal.SIGTERM):
            faulthandler.register(number)
        with trainwarden.run("r") as run:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGTERM)
            run.step(1)
    """)
    assert (done.returncode, done.stderr.count("Current thread")) == (0, 2)
    assert read_snapshot(script.folder).state == "succeeded"


def test_lightnings_own_answer_to_sigusr1_is_not_prevented(script: Script) -> None:
    """It starts the job again through SLURM, but only where it finds no handler."""
    done = script.run("""
        import signal, sys, trainwarden
        sys.modules["pytorch_lightning"] = sys
        with trainwarden.run("r"):
            print(signal.getsignal(signal.SIGUSR1))
    """)
    assert done.stdout == f"{signal.SIG_DFL}\n"


@pytest.mark.parametrize("said", [{}, {"SLURM_JOB_ID": "9"}, {"SLURM_JOB_ID": "9", "SLURM_JOB_END_TIME": "soon"}])
def test_where_slurm_gives_no_end_time_the_signal_is_all_that_is_known(said: dict[str, str]) -> None:
    assert [signal_reason(number, 1000.0, said) for number in (signal.SIGTERM, signal.SIGUSR1)] == [
        "SIGTERM",
        "SIGUSR1",
    ]
