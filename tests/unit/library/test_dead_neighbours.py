"""A rank that receives SIGTERM: from a user, or from a launcher because another rank died."""

import signal
import subprocess
import time

import pytest

from tests.unit.library.looking import read_metadata
from tests.unit.library.processes import Script, line
from tests.waiting import wait_until
from trainwarden.identity import host_name
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.record.snapshot import Snapshot, read_snapshot
from trainwarden.record.store import RecordStore
from trainwarden.taxonomy import FAILURES

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


def test_asked_to_end_after_another_rank_was_killed_is_a_failure_that_names_that_rank(pair: Pair) -> None:
    pair.end(1, signal.SIGKILL)
    pair.end(0, signal.SIGTERM)
    record = pair.record()
    assert record.state == "failed"
    assert record.error is not None
    assert (record.error.failure, record.error.rank) == ("killed", 1)
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


def test_a_rank_can_record_the_failure_of_rank_0(pair: Pair) -> None:
    pair.end(0, signal.SIGKILL)
    pair.end(1, signal.SIGTERM)
    record = pair.record()
    assert record.state == "failed"
    assert record.error is not None
    assert record.error.failure == "killed"


def test_asked_to_end_one_after_the_other_is_what_a_user_does(pair: Pair) -> None:
    pair.end(1, signal.SIGTERM)
    pair.end(0, signal.SIGTERM)
    record = pair.record()
    assert (record.state, record.error) == ("cancelled", None)


def test_ctrl_c_is_what_a_user_does_whoever_fell_before(pair: Pair) -> None:
    pair.end(1, signal.SIGKILL)
    pair.end(0, signal.SIGINT)
    assert pair.record().state == "cancelled"


def test_a_rank_of_another_attempt_is_no_peer(script: Script) -> None:
    rank = script.start(_RANK, RANK="0", WORLD_SIZE="2", TRAINWARDEN_ATTEMPT_KEY=_KEY)
    assert line(rank.stdout) == "trains\n"
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    beat = {"rank": 1, "status": "running", "host": host_name(), "pid": int(gone.stdout), "attempt_key": "local:6-1:0"}
    write_json(script.folder / "ranks" / "1.json", {**beat, "time": to_iso(time.time())})
    rank.send_signal(signal.SIGTERM)
    rank.wait(30)
    # What became of this attempt's own rank 1 is out of sight.
    record = read_snapshot(script.folder)
    assert (record.state, record.error and record.error.failure) == ("failed", "terminated")


class Spread:
    """Rank 0 of an attempt on this host, and rank 1 on another, whose files appear in the shared folder."""

    def __init__(self, script: Script) -> None:
        self.folder = script.folder
        self.rank = script.start(_RANK, RANK="0", WORLD_SIZE="2", TRAINWARDEN_ATTEMPT_KEY=_KEY)
        assert line(self.rank.stdout) == "trains\n"
        beat = {"rank": 1, "status": "running", "host": "elsewhere", "pid": 4711, "attempt_key": _KEY}
        write_json(self.folder / "ranks" / "1.json", {**beat, "time": to_iso(time.time())})

    def end(self) -> Snapshot:
        self.rank.send_signal(signal.SIGTERM)
        self.rank.wait(30)
        return read_snapshot(self.folder)

    def fail(self, exception: str) -> None:
        RecordStore(self.folder).record_failure(
            key=_KEY, failure=FAILURES["user_exception"], message=exception, rank=1, host="elsewhere"
        )


@pytest.fixture
def spread(script: Script) -> Spread:
    return Spread(script)


def test_sigterm_where_a_rank_is_on_another_host_is_an_end_of_unknown_cause(spread: Spread) -> None:
    record = spread.end()
    assert record.state == "failed" and record.error is not None and record.metadata is not None
    assert (record.error.failure, record.error.error_type) == ("terminated", "unknown")
    assert record.metadata.reason == record.error.message == "ended from outside (SIGTERM), cause unknown"


def test_the_crash_of_a_rank_on_another_host_is_the_failure(spread: Spread) -> None:
    first = f"attempt_key={_KEY} pid=4711 start=1 host=elsewhere"
    where = 'Current thread 0x1 (most recent call first):\n  File "t.py", line 7 in train'
    trace = f"Fatal Python error: Segmentation fault\n\n{where}\n"
    (spread.folder / "ranks" / "1.trace").write_text(f"{first.ljust(511)}\n{trace}")
    record = spread.end()
    assert record.state == "failed" and record.error is not None
    assert record.error.failure == "crash_signal"
    assert record.error.message == "rank 1 crashed in t.py:7 (train): Segmentation fault"


def test_an_error_that_another_host_writes_a_moment_later_is_the_failure(spread: Spread) -> None:
    spread.rank.send_signal(signal.SIGTERM)
    spread.fail("ValueError: bad batch")
    spread.rank.wait(30)
    record = read_snapshot(spread.folder)
    assert record.state == "failed" and record.error is not None and record.metadata is not None
    assert (record.error.rank, record.metadata.reason) == (1, "ValueError: bad batch")


def test_a_launcher_may_kill_a_second_after_sigterm(spread: Spread) -> None:
    spread.rank.send_signal(signal.SIGTERM)
    wait_until((spread.folder / "_error").exists, "the end is recorded at once")
    wait_until(
        lambda: (metadata := read_metadata(spread.folder)) and metadata.status == "failed", "in the metadata too"
    )
    spread.rank.kill()
    spread.rank.wait(30)
    record = read_snapshot(spread.folder)
    assert (record.state, record.error and record.error.failure) == ("failed", "terminated")


def test_another_ranks_unknown_end_does_not_keep_rank_0_from_the_cause(spread: Spread) -> None:
    RecordStore(spread.folder).record_failure(
        key=_KEY, failure=FAILURES["terminated"], message="ended from outside (SIGTERM), cause unknown", rank=2
    )
    spread.rank.send_signal(signal.SIGTERM)
    spread.fail("ValueError: bad batch")
    spread.rank.wait(30)
    record = read_snapshot(spread.folder)
    assert record.metadata is not None and record.metadata.reason == "ValueError: bad batch"


def test_an_error_that_comes_too_late_still_replaces_the_unknown_cause(spread: Spread) -> None:
    spread.end()
    spread.fail("ValueError: bad batch")
    spread.fail("ValueError: its consequence")
    record = read_snapshot(spread.folder)
    assert record.error is not None
    assert (record.error.failure, record.error.message) == ("user_exception", "ValueError: bad batch")


@pytest.mark.parametrize(("seconds", "reason"), [(30, "time limit"), (36000, None)])
def test_a_time_limit_explains_a_sigterm_on_several_hosts(script: Script, seconds: int, reason: str | None) -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time()) + seconds)}
    rank = script.start(_RANK, RANK="0", WORLD_SIZE="2", **environment)
    assert line(rank.stdout) == "trains\n"
    rank.send_signal(signal.SIGTERM)
    rank.wait(30)
    record = read_snapshot(script.folder)
    assert record.state == ("cancelled" if reason else "failed")
    training = script.read("summary.json")["training"]
    assert (training["reason"], training["failure"]) == (
        (reason, "time_limit") if reason else ("ended from outside (SIGTERM), cause unknown", "terminated")
    )
