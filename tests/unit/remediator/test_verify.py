"""From when a restart counts as one that did not help."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.remediator.simulated_cluster import FakeClock
from tests.unit.remediator.simulation import Simulation
from trainwarden.record.superseded import Superseded, write_superseded
from trainwarden_remediator.act.verify import Verification, Verifier
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.driver import JobState, RestartProgress, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Action, Incident, State
from trainwarden_remediator.observe.evidence import Evidence
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers


class NothingSeen:
    """No exporter has shown an attempt of the run yet."""

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        return dict.fromkeys(run_ids, Unknown("no samples"))

    def restarts(self, database: str) -> dict[str, float] | Unknown:
        return Unknown("no samples")


INCIDENT = Incident(
    "i", "r", 0, "local:7:0", "7", "local", "TrainRunStalled", "stall", "hang", State.VERIFYING, Action.RESTART,
    "policy", "default", 0, 2, 20.0, created=0.0, updated=0.0,
)  # fmt: skip


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def verifier(tmp_path: Path, clock: FakeClock) -> Iterator[Verifier]:
    engine = open_database(tmp_path)
    world = World(clock, cast("Any", None), NothingSeen(), {}, cast("Any", None))
    yield Verifier(world, Timers(Store(engine, clock).transactions, clock), 1800.0)
    engine.dispose()


@pytest.mark.parametrize(
    ("generation", "detail", "seconds"),
    [(0, "the new start is running", 1800), (1, "the new start has ended", 120)],
)
def test_the_old_start_that_is_seen_ended_is_not_taken_for_the_new_one(
    verifier: Verifier, clock: FakeClock, generation: int, detail: str, seconds: int
) -> None:
    """The launcher has taken the restart, ended the old start, and has not begun the new one yet."""
    reading = ScheduledJob("7", "r", generation, JobState.FAILED, "failed", None, {"i": 1})
    assert verifier.verify(INCIDENT, reading, RestartProgress.STARTED) == Verification(State.VERIFYING, detail)
    clock.jump = 1e6  # the wall clock ends nothing
    clock.elapsed += seconds - 1
    assert verifier.verify(INCIDENT, reading, RestartProgress.STARTED) is None
    clock.elapsed += 1
    verdict = verifier.verify(INCIDENT, reading, RestartProgress.STARTED)
    assert verdict is not None
    assert verdict.state is State.ESCALATED


def test_two_attempts_that_live_side_by_side_page_and_nothing_is_ended(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path / "state", two_phase=True)
    simulation.runs_dir = tmp_path / "runs"
    folder = tmp_path / "runs" / "run-1"
    folder.mkdir(parents=True)
    simulation.restart()

    def rival() -> None:
        (folder / "metadata.json").write_text("{}")
        write_superseded(folder, Superseded(attempt=0, status="running", host="n1", pid=7, step=41))
        for name in ("metadata.json", "superseded.0.json"):
            os.utime(folder / name, (simulation.clock.now(), simulation.clock.now()))

    while simulation.cluster.generation == 0:
        simulation.tick()
    for _ in range(45):
        rival()
        simulation.tick()
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert incident.reason == (
        "two attempts of the run live: attempt 0 still runs on n1 (pid 7) at step 41, beside attempt 1: end one of them"
    )
    # The newer one fails: which of both is the run's is for a person to tell.
    simulation.cluster.crash()
    for _ in range(60):
        rival()
        simulation.tick()
    assert simulation.our_starts == [0]
    assert simulation.store.pending()[0].waits_for.startswith("two attempts of the run live")  # type: ignore[union-attr]
    simulation.close()


def test_why_the_new_start_waits_is_noted_once_and_what_never_comes_pages(verifier: Verifier, clock: FakeClock) -> None:
    """All nodes that it could use are excluded: SLURM shows a reason, and would wait for ever."""

    def verify(reason: str, *, never: bool = False) -> Verification | None:
        state = {"excluded_nodes": ("n1", "n2"), "waits_because": reason, "never_starts": never}
        job = ScheduledJob("7", "r", 1, JobState.WAITING, "PENDING", None, {"i": 1}, **cast("Any", state))
        return verifier.verify(INCIDENT, job, RestartProgress.STARTED)

    noted = Verification(State.VERIFYING, "the new start waits in the queue: Priority")
    assert verify("Priority") == noted
    clock.elapsed += 1e6
    assert verify("Priority") is None, "a queue may be long"
    assert verify("BadConstraints", never=True) is not None
    clock.elapsed += 119
    assert verify("BadConstraints", never=True) is None
    clock.elapsed += 1
    verdict = verify("BadConstraints", never=True)
    assert verdict is not None
    assert (verdict.state, verdict.changes["paging"]) == (State.ESCALATED, True)
    assert verdict.detail.endswith("does not begin by itself: BadConstraints; it avoids n1, n2")
