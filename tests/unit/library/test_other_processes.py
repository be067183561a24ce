"""A run is its process's own, and all its threads'."""

import signal

import pytest

from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script


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
