"""Cancelled asyncio tasks, closed generators, threads and notebooks: the caller decides the outcome."""

import pytest

from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script

pytestmark = pytest.mark.process

TASK = """
    import asyncio, os, signal, sys, trainwarden
    async def train():
        with trainwarden.run("r", total_steps=9) as run:
            run.step(1)
            {first}
            await asyncio.sleep(30)
    {then}
"""

GENERATOR = """
    import trainwarden
    def train():
        with trainwarden.run("r", total_steps=9) as run:
            for number in range(1, 10):
                run.step(number)
                yield number
    def main():
        for number in train():
            {end}
    main()
    {then}
"""

INTERRUPT = "asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize(
    ("first", "then", "state", "reason"),
    [
        (INTERRUPT, "asyncio.run(train())", "cancelled", "SIGINT"),
        (
            INTERRUPT,
            "try: asyncio.run(train())\n    except KeyboardInterrupt: pass",
            "cancelled",
            "its task was cancelled before it came to its end",
        ),
        ("pass", "asyncio.run(asyncio.wait_for(train(), 0.1))", "failed", "TimeoutError"),
    ],
)
def test_a_cancelled_task_is_what_its_process_makes_of_it(
    script: Script, first: str, then: str, state: str, reason: str
) -> None:
    script.run(TASK.format(first=first, then=then))
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason, record.completion) == (state, reason, None)


@pytest.mark.parametrize(
    ("end", "then", "state", "reason"),
    [
        ("if number == 5: raise ValueError('of the reader')", "pass", "failed", "of the reader"),
        ("if number == 5: break", "pass", "cancelled", "its generator was closed before it came to its end"),
        ("if number == 9: break", "pass", "succeeded", None),
        (
            "if number == 5: break",
            "with trainwarden.run('next'): pass",
            "cancelled",
            "its generator was closed before it came to its end",
        ),
    ],
)
def test_a_closed_generator_is_what_its_reader_makes_of_it(
    script: Script, end: str, then: str, state: str, reason: str | None
) -> None:
    script.run(GENERATOR.format(end=end, then=then))
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == (state, reason)


def test_a_thread_that_dies_of_its_exception_makes_no_success_of_its_process(script: Script) -> None:
    done = script.run("""
        import threading, trainwarden
        def train():
            trainwarden.run("r")
            trainwarden.step(1)
            raise ValueError("in its thread")
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    """)
    assert (done.returncode, "in its thread" in done.stderr) == (0, True)
    record = read_snapshot(script.folder)
    assert (record.state, record.error.message, record.completion) == ("failed", "in its thread", None)


def test_a_thread_that_trains_for_a_run_of_the_main_thread_makes_no_success_either(script: Script) -> None:
    script.run("""
        import threading, trainwarden
        trainwarden.run("r")
        def train():
            trainwarden.step(1)
            raise ValueError("in its thread")
        threading.Thread(target=train).start()
    """)
    assert read_snapshot(script.folder).state == "failed"


def test_a_thread_of_another_purpose_may_die_without_ending_the_run(script: Script) -> None:
    script.run("""
        import threading, trainwarden
        trainwarden.run("r")
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        trainwarden.step(7)
    """)
    record = read_snapshot(script.folder)
    assert (record.state, record.progress.step) == ("succeeded", 7)


@pytest.mark.parametrize(
    ("before", "after", "state"), [("", "show()", "cancelled"), ("show()", "", "succeeded"), ("", "", "succeeded")]
)
def test_a_notebook_that_showed_an_exception_makes_no_success_when_it_is_closed(
    script: Script, before: str, after: str, state: str
) -> None:
    script.run(f"""
        import sys, trainwarden
        def show():  # as IPython does
            sys.last_value = ValueError("of a cell")
        {before}
        trainwarden.run("r")
        trainwarden.step(1)
        {after}
    """)
    assert read_snapshot(script.folder).state == state
