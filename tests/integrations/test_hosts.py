"""Torchrun over several hosts: one of them loses a rank, and the launcher ends the others."""

import json
import os
import signal
from typing import Any

import pytest

from tests.integrations.hosts import C10D, STATIC, Hosts, needs_hosts
from tests.integrations.programs import Programs
from tests.unit.library.looking import read_snapshot

pytestmark = needs_hosts

# Without collectives, which would break and be the failure: each rank only knows of the others by the record.
_ENDLESS = """
    import ctypes, os, signal, time, trainwarden
    with trainwarden.run("r", total_steps=10**6) as run:
        for step in range(1, 10**6):
            run.step(step)
            time.sleep(0.02)
            if run.rank == 1 and os.path.exists("now"):
                {what}
"""


def lose(programs: Programs, what: str, *options: str) -> Any:
    hosts = Hosts(programs, programs.script(_ENDLESS.format(what=what)), *(options or C10D))
    beats = hosts.wait_until_training()
    assert {beat.host for beat in beats.values()} == {"host0", "host1"}
    (programs.runs.parent / "now").touch()
    assert 0 not in hosts.end_when_one_is_lost()
    return read_snapshot(programs.folder)


def test_a_rank_that_was_killed_on_another_host_is_no_cancel(programs: Programs) -> None:
    record = lose(programs, "os.kill(os.getpid(), signal.SIGKILL)")
    assert (record.state, record.metadata.status) == ("failed", "failed")
    assert (record.error.failure, record.error.error_type) == ("terminated", "unknown")
    assert record.metadata.reason == "ended from outside (SIGTERM), cause unknown"
    assert not (programs.folder / "_complete").exists()


def test_a_crash_on_another_host_is_the_failure(programs: Programs) -> None:
    # torchrun enables faulthandler for programs with @record alone.
    record = lose(programs, "ctypes.string_at(0)")
    assert (record.state, record.error.failure) == ("failed", "crash_signal")
    assert "rank 1 crashed" in record.error.message
    host = next(beat.host for beat in record.ranks if beat.rank == 1)
    assert (record.error.rank, record.error.host) == (1, host)


@pytest.mark.parametrize("options", [C10D, STATIC, (*C10D, "--rdzv-id", "start-7")])
def test_an_exception_on_another_host_is_the_failure_with_and_without_an_id(
    programs: Programs, options: tuple[str, ...]
) -> None:
    record = lose(programs, "raise ValueError('bad batch on this rank')", *options)
    key = "torchrun:start-7:0" if "--rdzv-id" in options else "torchrun:127.0.0.1-"
    assert record.metadata.attempt_key.startswith(key)
    assert {beat.attempt_key for beat in record.ranks} == {record.metadata.attempt_key}
    assert (record.state, record.error.rank, record.error.message) == ("failed", 1, "bad batch on this rank")
    assert record.metadata.reason == "bad batch on this rank"


@pytest.mark.parametrize(("options", "attempts", "warnings"), [(C10D, 2, 0), (STATIC, 1, 1)])
def test_without_an_id_the_next_start_is_another_attempt_if_its_port_is(
    programs: Programs, options: tuple[str, ...], attempts: int, warnings: int
) -> None:
    lose(programs, "raise ValueError('bad batch')", *options)
    finishing = programs.script("""
        import trainwarden
        with trainwarden.run("r", total_steps=3) as run:
            for step in range(1, 4):
                run.step(step)
    """)
    hosts = Hosts(programs, finishing, *options)
    assert hosts.statuses() == [0, 0]
    record = read_snapshot(programs.folder)
    assert (record.state, record.error, len(record.metadata.attempts)) == ("succeeded", None, attempts)
    assert json.loads((programs.folder / "_error.0").read_text())["message"] == "bad batch"
    said = "".join(agent.stdout.read() for agent in hosts.agents if agent.stdout)
    assert said.count("torchrun has no --rdzv-id") == warnings


def test_an_interrupt_of_the_launchers_cancels_the_run(programs: Programs) -> None:
    hosts = Hosts(programs, programs.script(_ENDLESS.format(what="pass")), *C10D)
    hosts.wait_until_training()
    for agent in hosts.agents:
        os.kill(agent.pid, signal.SIGINT)
    hosts.statuses()
    record = read_snapshot(programs.folder)
    assert (record.state, record.metadata.reason, record.error) == ("cancelled", "SIGINT", None)
