"""A controller that is killed forgets the last seconds: no start is given twice because of that, and none is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.incidents.incident_rows import acknowledge


def killed(simulation: Simulation, saved: tuple[JobState, int, int, float | None]) -> None:
    """The controller is killed, and comes back with an older state."""
    simulation.cluster.forget(saved)
    simulation.driver.boots += 1


def until(simulation: Simulation, condition: Callable[[], bool]) -> None:
    """Let time pass until a condition holds."""
    for _ in range(100):
        if condition():
            return
        simulation.tick()
    raise AssertionError(simulation.store.with_events())


def test_a_start_that_was_given_and_forgotten_is_not_given_again(simulation: Simulation) -> None:
    simulation.cluster.queues_after_start = True
    until(simulation, lambda: simulation.cluster.state is JobState.WAITING)
    killed(simulation, (JobState.HELD, 1, 0, None))
    [incident] = simulation.settle()
    assert simulation.driver.calls == ["prepare: none", "commit: none"]
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "it may have forgotten a start that it gave" in incident.reason
    assert "scontrol release 17" in incident.reason, "a person goes on by this"
    assert simulation.our_starts == [0]


def test_a_release_without_an_answer_is_repeated_while_the_controller_is_the_same(simulation: Simulation) -> None:
    simulation.driver.faults = ["none", "dropped"]
    [incident] = simulation.settle()
    assert simulation.driver.calls == ["prepare: none", "commit: dropped", "commit: none"]
    assert incident.state is State.DONE
    assert simulation.our_starts == [0]


def test_a_controller_that_was_started_again_before_the_release_gives_the_start(simulation: Simulation) -> None:
    until(simulation, lambda: simulation.cluster.state is JobState.ENDING)
    simulation.driver.boots += 1
    [incident] = simulation.settle()
    assert incident.state is State.DONE
    assert simulation.our_starts == [0]


def test_a_planned_restart_of_the_controller_during_a_release_pages_and_a_person_goes_on(
    simulation: Simulation,
) -> None:
    """Its answer is lost, and the release, too: whether a start was given is unknown."""
    simulation.driver.faults = ["none", "dropped"]
    until(simulation, lambda: "commit: dropped" in simulation.driver.calls)
    simulation.driver.boots += 1
    [incident] = simulation.settle()
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "scontrol release 17" in incident.reason
    simulation.cluster.release()
    simulation.tick(5)
    assert simulation.store.escalations() == []


def test_an_end_that_was_forgotten_before_the_release_is_repeated(simulation: Simulation) -> None:
    running = simulation.cluster.save()
    until(simulation, lambda: simulation.cluster.state is JobState.ENDING)
    killed(simulation, running)
    incidents = simulation.settle()
    assert [each.state for each in incidents] == [State.DONE]
    assert simulation.our_starts == [0]


def test_another_start_under_the_same_count_is_left_alone(simulation: Simulation) -> None:
    """The scheduler forgot the call and the start, and began the job once more: that start is not the stalled one."""
    running = simulation.cluster.save()
    until(simulation, lambda: simulation.cluster.state is JobState.ENDING)
    killed(simulation, (*running[:3], simulation.clock.elapsed))
    [incident] = simulation.settle()
    assert simulation.driver.calls == ["prepare: none"]
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "once more under the restart count 0" in incident.reason
    assert simulation.cluster.state is JobState.RUNNING


@pytest.mark.parametrize("away", [0, 300], ids=["comes back at once", "is away for long"])
@pytest.mark.parametrize(("shown", "state"), [(JobState.HELD, State.ESCALATED), (JobState.WAITING, State.ADOPTED)])
def test_a_start_that_was_to_be_ended_and_was_forgotten_leaves_no_doubt(
    simulation: Simulation, shown: JobState, state: State, away: int
) -> None:
    """The job waits under the count of the start that was to be ended: no call of ours is awaited any more."""
    until(simulation, lambda: simulation.cluster.state is JobState.ENDING)
    simulation.driver.down = away > 0
    killed(simulation, (shown, 0, 0, None))
    simulation.tick(away)
    simulation.driver.down = False
    simulation.tick(int(DOUBT_SECONDS) + 2)
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, incident.paging) == (state, state is State.ESCALATED)
    assert state is State.ADOPTED or "release it (scontrol release 17)" in incident.reason
    assert simulation.our_starts == []


def test_a_restart_that_was_forgotten_altogether_pages(simulation: Simulation) -> None:
    simulation.cluster.queues_after_start = True
    running = simulation.cluster.save()
    until(simulation, lambda: simulation.our_starts == [0])
    killed(simulation, running)
    simulation.settle()
    incident = simulation.store.of_run("run-1")[0]
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "restart count 0 of job 17 again, after 1" in incident.reason
    assert simulation.our_starts == [0]
    assert simulation.driver.calls == ["prepare: none", "commit: none"]


def test_a_start_that_is_forgotten_after_its_incident_is_over_is_not_given_again(simulation: Simulation) -> None:
    [incident] = simulation.settle()
    assert incident.state is State.DONE
    killed(simulation, (JobState.HELD, 1, 0, None))
    simulation.tick(200, every=5)
    assert simulation.driver.calls == ["prepare: none", "commit: none"]
    last = simulation.store.of_run("run-1")[-1]
    assert last.state is State.ESCALATED
    assert "may have forgotten a start" in last.reason
    assert "scontrol release 17" in last.reason


def test_the_page_about_a_forgotten_start_lasts_while_the_scheduler_does_not_answer(simulation: Simulation) -> None:
    """The record shows the attempt that was lost: it has not taken over."""
    until(simulation, lambda: simulation.cluster.state is JobState.ENDING)
    simulation.prometheus_down = True  # so that it is not seen before it is lost
    until(simulation, lambda: simulation.our_starts == [0])
    killed(simulation, (JobState.HELD, 1, 0, None))
    until(simulation, lambda: bool(simulation.store.escalations()))
    simulation.prometheus_down, simulation.driver.down = False, True
    simulation.restart()  # nor has it an older answer
    simulation.tick(20)
    [page] = simulation.store.escalations()
    assert "may have forgotten a start" in page.reason, "what is unknown ends no page"
    simulation.driver.down = False
    simulation.cluster.release()
    simulation.tick(20)
    assert simulation.store.escalations() == []


def test_the_page_about_it_lasts_for_as_long_as_the_job_is_held(simulation: Simulation) -> None:
    """The record still shows the attempt that was lost: it has not taken over."""
    simulation.settle()
    killed(simulation, (JobState.HELD, 1, 0, None))
    simulation.tick(200, every=5)
    [page] = simulation.store.escalations()
    assert "may have forgotten a start" in page.reason
    simulation.driver.down = True
    simulation.tick(20)
    assert len(simulation.store.escalations()) == 1, "what is unknown ends no page"
    simulation.driver.down = False
    simulation.cluster.release()
    simulation.tick(20)
    assert simulation.store.escalations() == []


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_start_that_is_forgotten_again_after_the_page_has_ended_pages_unless_a_person_has_taken_over(
    simulation: Simulation, acknowledged: bool
) -> None:
    simulation.settle()
    for _ in range(2):
        killed(simulation, (JobState.HELD, 1, 0, None))
        simulation.tick(200, every=5)
        [page] = simulation.store.escalations()
        assert "may have forgotten a start" in page.reason
        simulation.cluster.release()
        simulation.tick(20)
        assert simulation.store.escalations() == []
    killed(simulation, (JobState.HELD, 1, 0, None))
    simulation.tick(200, every=5)
    assert len(simulation.store.escalations()) == 1
    if acknowledged:
        simulation.switch(lambda connection, now: acknowledge(connection, "run-1", "anna", now))
        simulation.tick(200, every=5)
        assert simulation.store.escalations() == []


def test_the_page_is_of_its_own_cluster_whatever_alerts_of_another_name_the_run(simulation: Simulation) -> None:
    simulation.cluster_name = "ours"
    simulation.foreign = {"run-1"}
    simulation.settle()
    killed(simulation, (JobState.HELD, 1, 0, None))
    simulation.tick(200, every=5)
    [page] = simulation.store.escalations()
    assert (page.cluster, page.failure_mode) == ("ours", "stall")
