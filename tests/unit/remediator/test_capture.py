"""Before an attempt is ended it is looked at: for a bounded time, whatever answers."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.library.processes import Script, line
from tests.unit.remediator.simulation import Simulation
from tests.unit.remediator.test_verify import INCIDENT
from tests.users import ANOTHER, needs_root
from tests.waiting import wait_until
from trainwarden.record.capture import answer_path
from trainwarden_remediator.act.capture import Capturer, prune
from trainwarden_remediator.incidents.incident import State

KEY = "local:7:0"
RANK = """
    import os, trainwarden
    def all_reduce():
        os.read(os.pipe()[0], 1)
    def read_shard():
        os.read(os.pipe()[0], 1)
    with trainwarden.run("r") as run:
        run.step(7)
        print("there", flush=True)
        read_shard() if os.environ["RANK"] == "1" else all_reduce()
"""
HUNG = replace(INCIDENT, state=State.CAPTURING)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    running = Script(tmp_path / "runs")
    yield running
    running.clean_up()


@pytest.mark.process
def test_the_rank_that_is_stopped_is_named_and_the_others_show_where_they_stand(script: Script, tmp_path: Path) -> None:
    ranks = [
        script.start(RANK, RANK=each, LOCAL_RANK=each, WORLD_SIZE="4", TRAINWARDEN_ATTEMPT_KEY=KEY) for each in "0123"
    ]
    for process in ranks:
        assert line(process.stdout) == "there\n"
    os.kill(ranks[3].pid, signal.SIGSTOP)
    capturer = Capturer(tmp_path / "state", script.runs, {"local": lambda job: f"JobId={job}\n".encode()}, 15.0)
    found = wait_until(lambda: capturer.result(HUNG, running=True))
    assert "rank 1 (" in found.text
    assert "in read_shard at <string>:" in found.text
    assert "ranks 0 (" in found.text
    assert "in all_reduce at <string>:" in found.text
    assert found.suspect.startswith("rank 3 (")
    assert found.suspect.endswith("no answer, where 3 answered")
    folder = Path(found.folder)
    assert folder == tmp_path / "state" / "captures" / "i"
    assert {"0.stacks", "1.stacks", "2.stacks", "job.txt", "summary.txt"} <= {each.name for each in folder.iterdir()}
    assert not (folder / "3.stacks").exists()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    assert (folder / "job.txt").read_text() == "JobId=7\n"
    assert "in read_shard" in (folder / "1.stacks").read_text()


def test_a_job_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    over = threading.Event()
    capturer = Capturer(tmp_path, tmp_path / "runs", {"local": lambda _job: b"gone"}, 30.0, done=over.set)
    capturer.result(HUNG, running=False)
    assert over.wait(60)  # the loop is woken by it
    found = capturer.result(HUNG, running=False)
    assert found is not None
    assert found.text == "no rank's stacks: the job has ended"
    capturer.described(HUNG.id)
    assert (Path(found.folder) / "job.txt").read_bytes() == b"gone"


def test_the_answer_of_the_scheduler_is_awaited_right_before_the_end_and_not_by_the_capture(tmp_path: Path) -> None:
    answered = threading.Event()

    def describe(_job: str) -> bytes:
        assert answered.wait(60)
        return b"JobId=7"

    capturer = Capturer(tmp_path, None, {"local": describe})
    found = wait_until(lambda: capturer.result(HUNG, running=True))
    answered.set()
    assert capturer.described(HUNG.id) is False, "that was no time in which what was read could become old"
    assert (Path(found.folder) / "job.txt").read_bytes() == b"JobId=7"


def test_what_was_read_before_a_long_wait_for_the_scheduler_is_read_again_before_the_end(
    simulation: Simulation,
) -> None:
    def recovers() -> None:
        simulation.cluster.step = simulation.cluster.high_water = 41

    simulation.captures.meanwhile = recovers
    simulation.tick(5)
    assert simulation.driver.calls == []
    assert simulation.store.of_run("run-1")[0].reason == "the run goes on by itself: step 41 after 40"


@pytest.mark.parametrize("answer", ["own", "link", pytest.param("another user's", marks=needs_root)])
def test_what_another_user_left_in_the_record_or_leads_out_of_it_is_no_answer(
    tmp_path: Path, script: Script, answer: str
) -> None:
    folder = script.folder
    (folder / "ranks").mkdir(parents=True)
    (folder / "ranks" / "0.json").write_text('{"rank": 0, "attempt_key": "local:7:0", "status": "running"}')
    text = '{"rank": 0, "attempt_key": "local:7:0", "intent": "i"}\nsecret\n'
    place = answer_path(folder, 0, "stacks")
    if answer == "link":
        (tmp_path / "secret").write_text(text)
        place.symlink_to(tmp_path / "secret")
    else:
        place.write_text(text)
    if answer == "another user's":
        os.chown(place, ANOTHER, ANOTHER)
    capturer = Capturer(tmp_path / "state", script.runs, {}, 0.5)
    found = wait_until(lambda: capturer.result(HUNG, running=True), timeout=20)
    kept = [each for each in Path(found.folder).glob("*") if each.is_file() and "secret" in each.read_text()]
    assert [each.name for each in kept] == (["0.stacks"] if answer == "own" else [])
    assert (found.text == "no answer of rank 0") == (answer != "own")


def test_the_oldest_captures_are_deleted(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a").write_bytes(b"x" * 10)
        os.utime(tmp_path / str(number), (number, number))
    prune(tmp_path, kept=3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["2", "3", "4"]
    prune(tmp_path, kept_bytes=15)
    assert [each.name for each in tmp_path.iterdir()] == ["4"]


def test_what_was_captured_is_in_the_decision_log_before_the_attempt_is_ended(simulation: Simulation) -> None:
    incident = simulation.settle()[-1]
    assert incident.state is State.DONE
    assert (incident.stacks, incident.suspect) == ("1 rank in all_reduce at train.py:8", "rank 1 (n2): no answer")
    assert incident.capture == "/captures/i"
    [(_, events)] = simulation.store.with_events()
    states = [event.state for event in events]
    assert states.index("CAPTURING") < states.index("PREPARING")
    captured = next(event.detail for event in events if event.state == "PREPARING")
    assert captured == ("captured: 1 rank in all_reduce at train.py:8; suspect: rank 1 (n2): no answer; /captures/i")


def test_a_capture_that_never_ends_delays_the_restart_by_its_bound_alone(simulation: Simulation) -> None:
    simulation.captures.seconds = 1e9
    simulation.tick(30)
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, simulation.driver.calls) == (State.CAPTURING, [])
    simulation.tick(2)
    [incident] = simulation.store.of_run("run-1")
    assert simulation.driver.calls
    assert incident.stacks == "nothing was captured in 30 s"


def test_a_remediator_that_dies_again_and_again_delays_it_no_longer(simulation: Simulation) -> None:
    simulation.captures.seconds = 1e9
    for _ in range(8):
        simulation.tick(5)
        simulation.restart()
    simulation.tick(3)
    assert simulation.driver.calls
    assert simulation.captures.begins <= 3
