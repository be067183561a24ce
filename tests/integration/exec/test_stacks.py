"""A command that hangs under `trainwarden exec` shows where, and no signal ends one that does not expect it."""

import sys

import pytest

from tests.integration.exec.running import Exec
from tests.waiting import wait_until
from trainwarden.record.capture import STACKS, StacksHeader, answer_path, parse_stacks, write_request
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden_remediator.act.stacks import Place, place_of

HANGS = """
import faulthandler, os, signal
if {registers}:
    faulthandler.register(signal.SIGUSR2, all_threads=True)
def read_data():
    os.read(os.pipe()[0], 1)
print("ready", flush=True)
read_data()
"""


def _answer(wrapped: Exec, code: str) -> tuple[StacksHeader, str]:
    process = wrapped.start(sys.executable, "-c", code, environment={"TRAINWARDEN_STACKS_SIGNAL": "SIGUSR2"})
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    metadata = read_metadata(wrapped.folder)
    assert isinstance(metadata, Metadata)
    write_request(wrapped.folder, metadata.attempt_key or "", "i")
    path = answer_path(wrapped.folder, 0, STACKS)
    wait_until(path.exists)
    assert process.poll() is None
    found = parse_stacks(path.read_bytes())
    assert found is not None
    return found


@pytest.mark.process
def test_a_command_that_has_registered_faulthandler_shows_where_it_stands(wrapped: Exec) -> None:
    header, text = _answer(wrapped, HANGS.format(registers=True))
    assert place_of(header, text) == Place("read_data", "<string>:6", is_collective=False)


@pytest.mark.process
def test_a_command_that_would_be_ended_by_the_signal_does_not_get_it(wrapped: Exec) -> None:
    header, text = _answer(wrapped, HANGS.format(registers=False))
    assert text == ""
    assert header.state == "S"


@pytest.mark.process
def test_a_training_with_the_library_answers_itself(wrapped: Exec) -> None:
    header, text = _answer(
        wrapped,
        """if True:
        import os, trainwarden
        def all_reduce():
            os.read(os.pipe()[0], 1)
        with trainwarden.run() as run:
            run.step(3)
            print("ready", flush=True)
            all_reduce()
        """,
    )
    assert header.step == 3
    assert "in all_reduce" in text
