"""A MemoryError in the thread that writes the record costs one round of writing, wherever it comes."""

import pytest

from tests.unit.library.looking import read_metadata, read_progress, read_snapshot
from tests.unit.library.processes import Script


@pytest.mark.process
@pytest.mark.parametrize("end", ["run.__exit__(None, None, None)", "raise ValueError('x')"])
def test_the_heartbeat_goes_on_after_a_memory_error_and_the_end_is_recorded(script: Script, end: str) -> None:
    done = script.run(f"""
        import ctypes, threading, trainwarden
        from tests.waiting import wait_until
        run = trainwarden.run("r")
        run.step(1)
        (thread,) = [one for one in threading.enumerate() if one.name == "trainwarden"]
        for count in range(1, 4):
            # Raised by the next instruction of the thread.
            error = ctypes.py_object(MemoryError)
            assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), error) == 1
            wait_until(lambda: run.write_errors == count or not thread.is_alive())
            assert thread.is_alive()
        run.step(2)
        run.phase("eval")
        wait_until(lambda: "eval" in (run.folder / "metadata.json").read_text())
        {end}
    """)
    assert "AssertionError" not in done.stderr
    assert read_progress(script.folder).step == 2
    assert read_snapshot(script.folder).state == ("failed" if "raise" in end else "succeeded"), done.stderr
    assert read_metadata(script.folder).write_errors == 3
