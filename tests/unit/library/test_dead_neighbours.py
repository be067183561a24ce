"""A rank that receives SIGTERM: from a user, or from a launcher because another rank died."""

import signal
import subprocess
import time

import pytest

from tests.unit.library.processes import Script, line
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.record.snapshot import Snapshot, read_snapshot

pytestmark = pytest.mark.process

_KEY = "local:7-1:0"
_RANK = """
    import sys, time, trainwarden
    with trainwarden.run("r") as run:
        run.step(1)
        print("trains", flush=True)
        if len(sys.argv) == 1:
            time.sleep(60)
"""


class Pair:
    """Two ranks of one attempt."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.ranks = [self._start(rank) for rank in (0, 1)]
        # What they write comes before they listen for signals.
        assert [line(rank.stdout) for rank in self.ranks] == ["trains\n", "trains\n"]

    def _start(self, rank: int) -> "subprocess.Popen[str]":
        return self._script.start(_RANK, RANK=str(rank), WORLD_SIZE="2", TRAINWARDEN_ATTEMPT_KEY=_KEY)

    def end(self, rank: int, number: int) -> None:
        self.ranks[rank].send_signal(number)
        self.ranks[rank].wait(30)

    def record(self) -> Snapshot:
        return read_snapshot(self._script.folder)


@pytest.fixture
def pair(script: Script) -> Pair:
    return Pair(script)


def test_told_to_end_after_another_rank_was_killed_is_a_failure_that_names_that_rank(pair: Pair) -> None:
    pair.end(1, signal.SIGKILL)
    pair.end(0, signal.SIGTERM)
    record = pair.record()
    assert record.state == "failed"
    assert record.error is not None
    assert (record.error.failure, record.error.rank) == ("killed", 0)
    assert f"rank 1 (process {pair.ranks[1].pid})" in record.error.message


@pytest.mark.parametrize(("age", "failure"), [(0.0, None), (7200.0, "killed")])
def test_a_restart_that_never_came_hides_no_rank_that_fell_later(
    pair: Pair, script: Script, age: float, failure: str | None
) -> None:
    announced = {"attempt_key": _KEY, "reason": "stalled", "time": to_iso(time.time() - age)}
    write_json(script.folder / "_restart", announced)
    pair.end(1, signal.SIGKILL)
    pair.end(0, signal.SIGTERM)
    record = pair.record()
    assert record.state == ("failed" if failure else "cancelled")
    assert (record.error and record.error.failure) == failure


def test_a_rank_can_say_so_of_rank_0(pair: Pair) -> None:
    pair.end(0, signal.SIGKILL)
    pair.end(1, signal.SIGTERM)
    record = pair.record()
    assert record.state == "failed"
    assert record.error is not None
    assert record.error.failure == "killed"


def test_told_to_end_one_after_the_other_is_what_a_user_does(pair: Pair) -> None:
    pair.end(1, signal.SIGTERM)
    pair.end(0, signal.SIGTERM)
    record = pair.record()
    assert (record.state, record.error) == ("cancelled", None)


def test_ctrl_c_is_what_a_user_does_whoever_fell_before(pair: Pair) -> None:
    pair.end(1, signal.SIGKILL)
    pair.end(0, signal.SIGINT)
    assert pair.record().state == "cancelled"


def test_a_rank_of_another_attempt_is_no_peer(pair: Pair, script: Script) -> None:
    pair.end(1, signal.SIGKILL)
    beat = script.folder / "ranks" / "1.json"
    beat.write_text(beat.read_text().replace(_KEY, "local:6-1:0"))
    pair.end(0, signal.SIGTERM)
    assert pair.record().state == "cancelled"
