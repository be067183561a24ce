"""Many incidents at once: each source is read once a round, and a slow scheduler keeps nobody waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from tests.unit.remediator.fake_driver import FakeDriver
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.act.act import Answer
from trainwarden_remediator.act.calls import Calls, ThreadedCalls
from trainwarden_remediator.drivers.driver import CallResult, JobState, RestartTarget
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.evidence import Evidence

RUNS, AT_ONCE = 20, 4


class SlowScheduler:
    """Holds each call until it is let go, and counts."""

    def __init__(self, simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived: threading.Semaphore = threading.Semaphore(0)
        self.gate: threading.Semaphore = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.prepare = simulation.driver.prepare
        monkeypatch.setattr(simulation.driver, "prepare", self.slowly)

    def slowly(self, target: RestartTarget) -> CallResult:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.arrived.release()
        assert self.gate.acquire(timeout=60)
        with self.lock:
            self.inside -= 1
            return self.prepare(target)


class Threads:
    """Makes calls in threads, and awaits their ends."""

    def __init__(self) -> None:
        self._ended = threading.Semaphore(0)

    def calls(self, done: Callable[[], None]) -> Calls[Answer]:
        def ended() -> None:
            done()
            self._ended.release()

        return ThreadedCalls(AT_ONCE, ended)

    def wait(self, count: int = AT_ONCE) -> None:
        for _ in range(count):
            assert self._ended.acquire(timeout=60)


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def many(tmp_path: Path, threads: Threads) -> Iterator[Simulation]:
    made = Simulation(tmp_path / "state", runs=RUNS, storm_runs=RUNS, calls=threads.calls)
    yield made
    made.close()


def test_each_source_is_read_once_a_round_for_all_incidents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(tmp_path / "state", runs=RUNS, storm_runs=RUNS)
    simulation.driver.faults = ["dropped"] * RUNS
    simulation.tick()
    assert {each.state for each in simulation.store.open_incidents()} == {State.IN_DOUBT}
    simulation.driver.snapshots.clear()
    asked: list[Collection[str]] = []
    runs = simulation.runs

    def counted(run_ids: Collection[str]) -> dict[str, Evidence]:
        asked.append(run_ids)
        return runs(run_ids)

    monkeypatch.setattr(simulation, "runs", counted)
    simulation.tick()
    [(_, read)] = simulation.driver.snapshots
    assert read == set(simulation.driver.clusters)
    assert len(asked) <= 1
    simulation.close()


def test_calls_run_side_by_side_within_the_bound_and_all_are_made(
    many: Simulation, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.remediator.simulated_cluster.ENDING_TICKS", 100)  # so that no start takes a turn
    scheduler = SlowScheduler(many, monkeypatch)
    for _ in range(RUNS // AT_ONCE):
        many.tick()
        for _ in range(AT_ONCE):
            assert scheduler.arrived.acquire(timeout=60)
        many.tick(3)  # the loop goes on, and begins nothing more
        assert not scheduler.arrived.acquire(blocking=False)
        scheduler.gate.release(AT_ONCE)
        threads.wait()
    many.settle()
    assert scheduler.most == AT_ONCE
    assert [each.state for each in many.clusters] == [JobState.RUNNING] * RUNS
    assert {cluster.generation for cluster in many.clusters} == {1}
    assert all(not cluster.violations for cluster in many.clusters)


def test_the_queue_is_not_read_for_what_only_waits_for_calls(
    many: Simulation, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow scheduler would have to list it again and again, and the loop would wait for that."""
    scheduler = SlowScheduler(many, monkeypatch)
    many.tick()
    for _ in range(AT_ONCE):
        assert scheduler.arrived.acquire(timeout=60)
    many.driver.snapshots.clear()
    many.tick(10)
    assert many.driver.snapshots == []
    scheduler.gate.release(RUNS)
    threads.wait()


def test_what_changes_while_a_call_waits_for_its_turn_is_seen_before_it(
    many: Simulation, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readings of a round are seconds old when a call is made: the job, run and alert are read once more."""
    simulation = many
    snapshot = simulation.driver.snapshot

    def recovers_meanwhile(job_ids: Collection[str] = ()) -> FakeDriver:
        if len(job_ids) == 1:
            cluster = simulation.driver.clusters[next(iter(job_ids))]
            cluster.step = cluster.high_water = 41
        return snapshot(job_ids)

    monkeypatch.setattr(simulation.driver, "snapshot", recovers_meanwhile)
    simulation.tick()
    threads.wait()
    simulation.tick()
    assert simulation.driver.calls == []
    withdrawn = [each for each in simulation.store.of_run("run-1") if each.state is State.SUPPRESSED]
    assert withdrawn[0].reason == "the run goes on by itself: step 41 after 40"
    assert withdrawn[0].calls == 0


def test_a_call_that_raises_is_in_doubt(tmp_path: Path, threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(tmp_path / "state", calls=threads.calls)

    def fails(_target: RestartTarget) -> CallResult:
        raise ZeroDivisionError

    monkeypatch.setattr(simulation.driver, "prepare", fails)
    simulation.tick()
    threads.wait(1)
    simulation.tick()
    assert [each.state for each in simulation.store.open_incidents()] == [State.IN_DOUBT]
    simulation.close()


def test_the_answer_of_a_call_is_taken_before_the_process_ends(
    many: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SlowScheduler(many, monkeypatch)
    many.worker.start()
    for _ in range(AT_ONCE):
        assert scheduler.arrived.acquire(timeout=60)
    scheduler.gate.release(RUNS)
    many.worker.stop()
    ended = [each for each in many.store.open_incidents() if each.calls]
    assert {each.state for each in ended} <= {State.PREPARING, State.PREPARED}
    details = [event.detail for _, events in many.store.with_events() for event in events]
    assert details.count("ok") == len(ended)


def test_a_call_that_died_with_its_process_is_in_doubt_for_the_whole_window(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path / "state")
    simulation.crash_at_name = "prepare: before call"
    simulation.tick(59)
    assert simulation.crashes == 1
    assert simulation.driver.calls == []
    assert [each.state for each in simulation.store.open_incidents()] == [State.IN_DOUBT]
    simulation.settle()
    assert simulation.our_starts == [0]
    assert simulation.cluster.state is JobState.RUNNING
    simulation.close()
