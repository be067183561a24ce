"""Every end leaves the right record: real processes, real statuses."""

import pytest

from tests.unit.library.ends import KEY, STYLES, WITH, WITHOUT, end_by
from tests.unit.library.looking import read_rank, read_snapshot
from tests.unit.library.processes import Script

pytestmark = pytest.mark.process


@STYLES
@pytest.mark.parametrize("end", ["pass", "sys.exit()", "sys.exit(0)"])
def test_a_normal_end_is_success(script: Script, style: str, end: str) -> None:
    done, record = end_by(script, style, end)
    assert (done.returncode, record.state, record.metadata.status) == (0, "succeeded", "succeeded")
    assert record.metadata.phase == "done"
    assert record.metadata.end_time is not None
    assert record.completion.step == record.progress.step == 3
    assert record.error is None


@STYLES
def test_an_exception_is_a_failure_with_its_message_trace_and_hint(script: Script, style: str) -> None:
    done, record = end_by(script, style, 'raise FloatingPointError("loss is NaN at step 3")')
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
        pytest.param("sys.exit(16)", 16, "rerun_to_disambiguate", marks=pytest.mark.nightly),
        pytest.param("sys.exit(17)", 17, "sdc_suspect", marks=pytest.mark.nightly),
        pytest.param("quit('no data')", 1, "nonzero_exit", marks=pytest.mark.nightly),
        ("os._exit(1)", 1, "nonzero_exit"),
        ("import threading; threading.Thread(target=os._exit, args=(93,)).start(); time.sleep(9)", 93, "launcher_stop"),
    ],
)
def test_an_exit_status_is_a_failure_that_keeps_it(
    script: Script, style: str, end: str, status: int, slug: str
) -> None:
    done, record = end_by(script, style, end)
    assert done.returncode == status
    assert (record.state, record.error.failure, record.error.exit_code) == ("failed", slug, status)


@STYLES
def test_an_immediate_exit_while_an_exception_is_handled_is_that_failure(script: Script, style: str) -> None:
    # To leave a process whose other threads would hold it up.
    end = "exec('try: raise ValueError(4711)\\nexcept ValueError: os._exit(1)')"
    done, record = end_by(script, style, end)
    assert done.returncode == 1, done.stderr
    assert (record.state, record.error.exception_type, record.error.message) == ("failed", "ValueError", "4711")


@STYLES
def test_an_immediate_exit_without_an_error_ends_the_run_well(script: Script, style: str) -> None:
    done, record = end_by(script, style, "os._exit(0)")
    assert (done.returncode, record.state, record.metadata.reason) == (0, "succeeded", None)


def test_success_of_rank_0_does_not_hide_the_failure_of_another(script: Script) -> None:
    record_failure = f"""
        from pathlib import Path
        from trainwarden.record.store import RecordStore
        from trainwarden.taxonomy import FAILURES
        store = RecordStore({str(script.folder)!r})
        store.record_failure(key={KEY!r}, failure=FAILURES["killed"], message="gone")
    """
    script.run(record_failure)
    _, record = end_by(script, WITH, "pass", TRAINWARDEN_ATTEMPT_KEY=KEY)
    assert (record.metadata.status, record.completion) == ("failed", None)


def test_other_ranks_write_neither_metadata_nor_progress(script: Script) -> None:
    done, _ = end_by(script, WITH, "pass", RANK="1", WORLD_SIZE="2")
    assert done.returncode == 0
    assert sorted(path.name for path in (script.folder).iterdir()) == ["ranks"]
    assert read_rank(script.folder, 1).step == 3


def test_kill_9_leaves_no_false_success(script: Script) -> None:
    _, record = end_by(script, WITH, "os.kill(os.getpid(), signal.SIGKILL)")
    assert (record.state, record.completion, record.error) == ("running", None, None)
    assert record.metadata.end_time is None


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


def test_an_exit_that_somebody_caught_is_noend_by(script: Script) -> None:
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


@pytest.mark.parametrize(
    ("then", "status", "state"),
    [
        ("pass", 0, "succeeded"),
        ("sys.exit(0)", 0, "succeeded"),
        ("raise", 5, "failed"),
        ("sys.exit(6)", 6, "failed"),
        ("os._exit(0)", 0, "running"),
        ("os._exit(6)", 6, "failed"),
        ("raise ValueError('broken')", 1, "failed"),
    ],
)
def test_an_exit_from_the_block_that_is_caught_is_recorded_as_the_process_ends(
    script: Script, then: str, status: int, state: str
) -> None:
    done = script.run(f"""
        import os, sys, trainwarden
        try:
            with trainwarden.run("r") as run:
                run.step(1)
                sys.exit(5)
        except SystemExit:
            {then}
    """)
    assert done.returncode == status, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.status) == (state, state)
    assert (record.completion is not None) == (state == "succeeded")
    if state == "failed":
        assert record.error.message == ("broken" if status == 1 else f"exit status {status}")


def test_a_run_that_is_left_by_an_exit_ends_when_the_next_begins(script: Script) -> None:
    script.run("""
        import sys, trainwarden
        try:
            with trainwarden.run("r"):
                sys.exit(5)
        except SystemExit:
            with trainwarden.run("other"):
                pass
    """)
    assert read_snapshot(script.folder).error.exit_code == 5


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
@pytest.mark.parametrize("total", ["None", pytest.param("100", marks=pytest.mark.nightly)])
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
    _, record = end_by(script, WITHOUT, "raise SystemExit(None)")
    assert (record.state, record.metadata.reason, record.completion.step) == ("succeeded", None, 3)


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit(0)"])
def test_a_success_before_the_last_step_shows_it(script: Script, end: str) -> None:
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


def test_a_finished_run_that_is_started_again_was_finished_already(script: Script) -> None:
    code = """
        import trainwarden
        with trainwarden.run("r", total_steps={total}) as run:
            for step in {steps}:
                run.step(step)
    """
    reasons = []
    for total, steps in ((60, [60]), (60, []), (80, []), (60, [30])):
        script.run(code.format(total=total, steps=steps))
        record = read_snapshot(script.folder)
        summary = script.read("summary.json")["training"]
        assert (record.state, summary["status"], summary["reason"]) == (
            "succeeded",
            "completed",
            record.metadata.reason,
        )
        reasons.append(record.metadata.reason)
    assert reasons == [None, "was finished already", "ended before the first step of 80", "ended at step 30 of 60"]
