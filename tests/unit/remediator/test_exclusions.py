"""A restarted job avoids the nodes of its incident for as long as it has to; its own list of nodes stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import State

HOUR = 3600.0


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    made = Simulation(tmp_path / "state", two_phase=True)
    made.cluster.excluded = {"users"}
    yield made
    made.close()


def _restart_elsewhere(simulation: Simulation, *nodes: str, hours: float | None) -> None:
    """The decision excludes nodes; then its restart runs its course."""
    excluded = json.dumps(dict.fromkeys(nodes, simulation.clock.now()))
    while not (found := [each for each in simulation.store.open_incidents() if each.committed is None]):
        simulation.tick()
    incident = replace(found[-1], exclude_nodes=excluded, exclude_hours=hours)
    simulation.store.move(incident, incident.state, "restart elsewhere")
    simulation.tick(8)


def test_the_nodes_are_excluded_before_the_release_and_readmitted_when_that_is_over(simulation: Simulation) -> None:
    _restart_elsewhere(simulation, "bad1", "users", hours=1)
    assert simulation.driver.calls == ["prepare: none", "commit: none"]
    assert simulation.cluster.excluded == {"users", "bad1"}
    simulation.clock.elapsed += HOUR
    simulation.tick(70, every=5)
    assert simulation.cluster.excluded == {"users", "bad1"}, "SLURM changes no job that runs"
    simulation.cluster.state = JobState.WAITING
    simulation.tick(70, every=5)
    assert simulation.cluster.excluded == {"users"}
    assert simulation.store.exclusions.of_scheduler("sim") == {}
    assert simulation.cluster.violations == []


def test_the_next_restart_takes_back_what_is_over(simulation: Simulation) -> None:
    simulation.cluster.progress_after_start = False
    _restart_elsewhere(simulation, "bad1", hours=4 / 3600)
    assert simulation.our_starts == [0, 1]
    assert simulation.cluster.excluded == {"users"}


def test_what_a_process_that_died_has_excluded_is_its_own_still(simulation: Simulation) -> None:
    simulation.crash_at_name = "commit: after call"
    _restart_elsewhere(simulation, "bad1", hours=1)
    assert simulation.crashes == 1
    simulation.settle()
    assert simulation.store.of_run(RUN)[0].state is State.DONE
    simulation.clock.elapsed += HOUR
    simulation.cluster.state = JobState.WAITING
    simulation.tick(70, every=5)
    assert simulation.cluster.excluded == {"users"}


def test_those_of_a_job_that_is_not_listed_stay_until_it_is_seen_to_be_gone(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list may leave out a job that the scheduler shows where it is asked for by its id."""
    _restart_elsewhere(simulation, "bad1", hours=1)
    monkeypatch.setattr(simulation.driver, "jobs", list)

    def noted() -> set[str]:
        return set(simulation.store.exclusions.of_scheduler("sim").get("17", {}))

    simulation.tick(70, every=5)
    assert noted() == {"bad1"}
    simulation.driver.down = True
    simulation.tick(70, every=5)
    assert noted() == {"bad1"}, "what is unknown is not gone"
    simulation.driver.down = False
    simulation.clock.elapsed += HOUR
    simulation.cluster.state = JobState.WAITING
    simulation.tick(70, every=5)
    assert (simulation.cluster.excluded, noted()) == ({"users"}, set())


def test_those_of_a_job_that_is_gone_are_forgotten(simulation: Simulation) -> None:
    _restart_elsewhere(simulation, "bad1", hours=None)
    simulation.cluster.lost = True
    simulation.tick(70, every=5)
    assert simulation.store.exclusions.of_scheduler("sim") == {}
