"""A signal that interrupts a call of the library, or one that logs, ends the process with its end recorded."""

import signal

import pytest

from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script

pytestmark = pytest.mark.process

# Sends the signal at the nth call in the library, or at the nth that is one of a function or in it.
_CALLS = """
    import os, signal, sys, trainwarden
    run = trainwarden.run("r")
    run.step(1, loss=1.0)
    function, nth, seen = os.environ["FUNCTION"], int(os.environ["NTH"]), 0

    def profile(frame, event, argument):
        global seen
        code = frame.f_code
        if event not in ("call", "c_call") or "trainwarden" not in code.co_filename:
            return
        if function in ("any", f"{os.path.basename(code.co_filename)}:{code.co_name}"):
            seen += 1
            if seen == nth:
                sys.setprofile(None)
                print("signalled", flush=True)
                os.kill(os.getpid(), signal.SIGTERM)

    sys.setprofile(profile)
    run.step(2, loss=0.5, epoch=1.5, tokens=5)
    run.epoch(1)
    run.epoch(2)
    run.note("a note", n=1)
    run.phase("eval")
    run.checkpoint_saved("/nowhere", 2)
    run.error(ValueError("x"))
"""


def _ends(script: Script, function: str, nth: int) -> None:
    done = script.run(_CALLS, FUNCTION=function, NTH=str(nth))
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "signalled\n"), done.stderr
    record = read_snapshot(script.folder)
    assert (record.metadata.status, record.metadata.reason) == ("cancelled", "SIGTERM"), done.stderr
    assert record.progress.step in {1, 2}


@pytest.mark.parametrize(
    ("function", "nth"),
    [
        ("loop.py:report", 3),
        ("loop.py:report", 4),
        ("steps.py:advance", 1),
        ("journal.py:add", 2),
        ("journal.py:add", 3),
    ],
)
def test_in_a_call_that_holds_a_lock_of_the_librarys(script: Script, function: str, nth: int) -> None:
    _ends(script, function, nth)


@pytest.mark.nightly
@pytest.mark.parametrize("nth", [*range(1, 120), *range(120, 1400, 200)])
def test_anywhere_in_the_calls(script: Script, nth: int) -> None:
    _ends(script, "any", nth)


def test_while_the_program_logs_and_the_record_cannot_be_written(script: Script) -> None:
    """The handler of the program holds its lock then, and the thread of the record has something to log."""
    done = script.run("""
        import logging, os, signal, sys, trainwarden
        from tests.waiting import wait_until

        class Handler(logging.StreamHandler):
            def emit(self, record):
                super().emit(record)
                if record.getMessage() == "saving":
                    run.step(2)
                    run.folder.rename(run.folder.with_name("moved"))
                    run.folder.write_text("in the way")
                    wait_until(lambda: run.write_errors)
                    os.kill(os.getpid(), signal.SIGTERM)

        logging.basicConfig(handlers=[Handler(sys.stderr)])
        run = trainwarden.run("r")
        logging.warning("saving")
    """)
    assert done.returncode == -signal.SIGTERM
    assert "the end of the run could not be recorded" in done.stderr
    assert "no time to record" not in done.stderr
