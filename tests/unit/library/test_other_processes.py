"""A run belongs to one process and all its threads, not to forked children."""

import json
import signal

import pytest

from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script

pytestmark = pytest.mark.process


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
        "    run.epoch(999); run.note('child'); trainwarden.error(ValueError('child'))\n"
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


def test_a_fork_waits_for_what_the_library_imports(script: Script) -> None:
    """Else the child waits for ever for the import lock of a thread that it does not have."""
    done = script.run("""
        import os, signal, sys, threading, trainwarden
        imports, forked = threading.Event(), threading.Event()
        class Slow:
            def find_spec(self, name, path, target=None):
                if name == "trainwarden.failures.patterns":
                    imports.set()
                    forked.wait(1)
        sys.meta_path.insert(0, Slow())
        with trainwarden.run("r"):
            imports.wait()
            pid = os.fork()
            forked.set()
            if pid == 0:
                signal.alarm(20)
                import trainwarden.failures.patterns
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)
    assert (done.stdout, done.stderr) == ("0\n", "")


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


def test_workers_of_a_data_loader_leave_the_run_to_the_process_that_started_them(script: Script) -> None:
    """Forked ones that inherit everything, and spawned ones that find no run; all have the functions at hand."""
    done = script.run("""
        import multiprocessing, os, signal, trainwarden
        with trainwarden.run("r") as run:
            run.step(1)
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                calls = [(trainwarden.step, (999,)), (trainwarden.epoch, (999,)), (trainwarden.note, ("child",))]
                workers = [context.Process(target=call, args=args) for call, args in calls]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                    assert worker.exitcode == 0
                with context.Pool(2) as pool:
                    assert pool.map(abs, [-1, -2]) == [1, 2]
            run.step(2)
    """)
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.progress.step, record.progress.epoch) == ("succeeded", 2, None)
    assert "child" not in (script.folder / "events.jsonl").read_text()


def test_a_worker_that_outlives_its_run_does_not_hold_the_folder(script: Script) -> None:
    done = script.run("""
        import os, signal, time, trainwarden
        with trainwarden.run("r"):
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
        with trainwarden.run("r") as again:
            again.step(7)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    """)
    assert done.returncode == 0, done.stderr
    assert read_snapshot(script.folder).progress.step == 7


def test_threads_may_all_call_at_once(script: Script) -> None:
    done = script.run("""
        import sys, threading, trainwarden
        sys.setswitchinterval(1e-5)
        def work(first):
            for number in range(first, first + 500):
                trainwarden.step(number, loss=float("nan"), tokens=1)
                with trainwarden.phase("eval"):
                    trainwarden.note("said", number=number)
                trainwarden.error(ValueError(number))
        with trainwarden.run("r"):
            threads = [threading.Thread(target=work, args=(500 * index,)) for index in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    """)
    assert done.returncode == 0, done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.progress.nonfinite, record.progress.high_water) == ("succeeded", 2000, 1999)
    said = [json.loads(text) for text in (script.folder / "events.jsonl").read_text().splitlines()]
    assert sorted(one["data"]["number"] for one in said if one["event_type"] == "said") == list(range(2000))
