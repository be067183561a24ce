"""A call without an answer may take effect on another start of the job; and a hold of a person is a person's."""

from __future__ import annotations

import pytest

from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import State


def test_a_late_requeuehold_on_the_start_that_the_scheduler_gave_is_undone(simulation: Simulation) -> None:
    """A node dies while the call is in doubt: SLURM requeues the job, and the call then ends the new attempt."""
    simulation.driver.faults = ["late"]
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    simulation.tick(20)
    [incident] = simulation.store.open_incidents()
    assert incident.state is State.IN_DOUBT, "not adopted before the call can take no effect any more"
    incidents = simulation.settle()
    assert simulation.cluster.generation == 2, "the call did take effect"
    assert simulation.cluster.state is JobState.RUNNING
    assert incidents[0].state is State.DONE
    assert simulation.our_starts == [1]
    assert simulation.cluster.violations == []


def test_a_late_requeuehold_is_undone_although_the_release_is_lost(simulation: Simulation) -> None:
    simulation.driver.faults = ["late", "dropped"]
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    simulation.settle()
    assert simulation.cluster.state is JobState.RUNNING
    assert simulation.our_starts == [1]


def test_a_start_that_stays_held_is_no_recovery_although_its_record_had_come_so_far(simulation: Simulation) -> None:
    """The scheduler refuses to release what the late call holds: a person has to."""
    simulation.driver.faults = ["late", "refused"]
    simulation.driver.late_seconds = 30
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    simulation.tick(20)
    assert simulation.cluster.step > 40, "the start that SLURM gave has passed the old one"
    simulation.tick(15)
    assert simulation.cluster.state is JobState.HELD
    simulation.clock.elapsed += DOUBT_SECONDS
    simulation.settle()
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "its job is held since" in incident.reason


@pytest.mark.parametrize("after", [3, 20, 40])
def test_it_is_undone_by_the_next_process_too(simulation: Simulation, after: int) -> None:
    simulation.driver.faults = ["late"]
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    simulation.tick(after)
    simulation.restart()
    simulation.settle()
    assert simulation.cluster.state is JobState.RUNNING
    assert simulation.cluster.generation == 2


def test_a_start_by_the_scheduler_is_adopted_once_the_doubt_is_over(simulation: Simulation) -> None:
    simulation.driver.faults = ["dropped"]
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    simulation.tick(int(DOUBT_SECONDS) - 5)
    assert simulation.store.open_incidents() != []
    simulation.tick(10)
    assert [each.state for each in simulation.store.of_run("run-1")] == [State.ADOPTED]


def test_doubt_ends_although_the_remediator_is_restarted_more_often_than_it_lasts(simulation: Simulation) -> None:
    simulation.driver.faults = ["dropped"]
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    for _ in range(4):
        simulation.tick(20)
        simulation.restart()
    assert [each.state for each in simulation.store.of_run("run-1")] == [State.ADOPTED]


def test_a_person_who_holds_the_job_after_its_release_wins(simulation: Simulation) -> None:
    simulation.cluster.queues_after_start = True
    simulation.tick(8)
    assert simulation.driver.calls == ["prepare: none", "commit: none"]
    simulation.cluster.user_hold()
    [incident] = simulation.settle()
    assert simulation.driver.calls == ["prepare: none", "commit: none"]
    assert simulation.cluster.state is JobState.HELD
    assert (incident.state, incident.paging) == (State.ESCALATED, True)


def test_a_person_who_holds_the_job_before_its_release_wins(simulation: Simulation) -> None:
    simulation.tick(2)
    assert simulation.driver.calls == ["prepare: none"]
    simulation.driver.down = True
    simulation.tick(4)
    simulation.cluster.user_hold()
    simulation.driver.down = False
    simulation.settle()
    assert simulation.driver.calls == ["prepare: none"]
    assert simulation.cluster.state is JobState.HELD


def test_a_release_that_the_scheduler_has_forgotten_is_repeated(simulation: Simulation) -> None:
    simulation.cluster.queues_after_start = True
    simulation.tick(8)
    simulation.cluster.state = JobState.HELD  # as requeuehold left it: the controller died, and lost the release
    simulation.settle()
    assert simulation.driver.calls[2:] == ["commit: none"]
