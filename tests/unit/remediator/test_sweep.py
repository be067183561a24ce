"""No job stays held because of the remediator, whatever became of its incident; a person's hold stays."""

from __future__ import annotations

import pytest

from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, RUN
from tests.unit.remediator.simulation import Crash, Simulation
from trainwarden_remediator.act.sweep import ALERT
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import Action, State
from trainwarden_remediator.store.timers import stored_timers


def _dies_between_hold_and_release(simulation: Simulation) -> None:
    simulation.crash_at_name = "prepare: after call"
    while not simulation.crashes:
        simulation.clock.elapsed += 1
        simulation.cluster.tick()
        try:
            simulation.worker.tick()
        except Crash:
            simulation.lose_database()
    simulation.restart()


def test_a_job_that_was_held_for_an_incident_whose_database_is_lost_is_released(simulation: Simulation) -> None:
    _dies_between_hold_and_release(simulation)
    simulation.tick(60, every=5)
    assert simulation.our_starts == [], "another remediator may be about to release it"
    simulation.tick(120, every=5)
    assert simulation.our_starts == [0]
    assert simulation.cluster.state is JobState.RUNNING
    simulation.settle()
    [swept] = [each for each in simulation.store.of_run(RUN) if each.alert == ALERT]
    assert (swept.action, swept.state) == (Action.RESTART, State.DONE)
    assert "its comment names an incident that is not on record" in swept.reason
    assert simulation.store.adoptions.restarts() == {RUN: 1}, "the start counts"
    assert simulation.cluster.violations == []


def test_what_somebody_else_has_released_is_waited_for_no_more(simulation: Simulation) -> None:
    _dies_between_hold_and_release(simulation)
    simulation.tick(20, every=5)
    assert stored_timers(simulation.store.transactions) != []
    simulation.cluster.release()
    simulation.tick(70, every=5)
    assert stored_timers(simulation.store.transactions) == []


def held_jobs(simulation: Simulation) -> dict[str, float]:
    [family] = simulation.sweeper.families()
    assert {sample.labels["scheduler"] for sample in family.samples} <= {"sim"}
    return {sample.labels["incident"]: sample.value for sample in family.samples}


def _dies_and_its_job_is_held(simulation: Simulation) -> None:
    """The database stays."""
    simulation.crash_at_name = "prepare: after call"
    while not simulation.crashes:
        simulation.tick()
    while simulation.cluster.state is not JobState.HELD:
        simulation.clock.elapsed += 1
        simulation.cluster.tick()


def test_a_held_job_is_counted_while_its_incident_is_worked_on_and_after_it_was_given_up(
    simulation: Simulation,
) -> None:
    assert held_jobs(simulation) == {}, "the queue was not read yet"
    _dies_and_its_job_is_held(simulation)
    simulation.sweeper.sweep()
    assert held_jobs(simulation) == {"open": 1, "none": 0}
    simulation.driver.faults = ["refused"]
    simulation.tick(90, every=5)
    assert [each.paging for each in simulation.store.escalations()] == [True]
    assert held_jobs(simulation) == {"open": 0, "none": 1}


def test_a_held_job_is_counted_by_its_comment_where_the_database_is_lost_until_it_is_released(
    simulation: Simulation,
) -> None:
    _dies_and_its_job_is_held(simulation)
    simulation.lose_database()
    simulation.restart()
    simulation.sweeper.sweep()
    assert held_jobs(simulation) == {"open": 0, "none": 1}
    simulation.tick(300, every=5)
    assert simulation.cluster.state is JobState.RUNNING
    assert held_jobs(simulation) == {"open": 0, "none": 0}


def test_a_hold_of_a_person_and_a_queue_that_is_unknown_are_not_counted(simulation: Simulation) -> None:
    _dies_and_its_job_is_held(simulation)
    simulation.cluster.user_hold()
    simulation.sweeper.sweep()
    assert held_jobs(simulation) == {"open": 0, "none": 0}
    simulation.driver.down = True
    simulation.tick(90, every=5)
    assert held_jobs(simulation) == {}


def test_a_job_without_a_trace_of_the_remediator_stays_held(simulation: Simulation) -> None:
    """As a person's own requeuehold, from which it cannot be told apart."""
    simulation.driver.notes_holds = False
    _dies_between_hold_and_release(simulation)
    simulation.tick(300, every=5)
    assert simulation.our_starts == []
    assert simulation.cluster.state is JobState.HELD


def test_a_hold_of_a_person_stays_although_the_comment_names_an_incident_whose_call_was_refused(
    simulation: Simulation,
) -> None:
    simulation.driver.faults = ["refused"]
    simulation.tick(2)
    assert simulation.driver.calls == ["prepare: refused"]
    simulation.cluster.step = simulation.cluster.high_water = 50
    simulation.silenced = True
    simulation.tick(int(3 * DOUBT_SECONDS))
    assert [each.paging for each in simulation.store.of_run(RUN)] == [False]
    simulation.cluster.requeue_hold(simulation.cluster.generation, ended=False)
    simulation.sweeper.sweep()
    simulation.tick(int(3 * DOUBT_SECONDS))
    assert simulation.cluster.state is JobState.HELD
    assert simulation.our_starts == []
    assert held_jobs(simulation) == {"open": 0, "none": 0}


@pytest.mark.parametrize("person", ["holds it too", "cancels it"])
def test_what_a_person_does_with_such_a_job_stands(simulation: Simulation, person: str) -> None:
    _dies_between_hold_and_release(simulation)
    simulation.tick(30)
    if person == "cancels it":
        simulation.cluster.cancel()
    else:
        simulation.cluster.user_hold()
    simulation.tick(300, every=5)
    assert simulation.our_starts == []
    assert simulation.cluster.violations == []


def test_a_call_that_ends_the_attempt_after_the_end_of_its_incident_is_undone(simulation: Simulation) -> None:
    """In doubt, then the run goes on by itself and the incident ends; the call ends the healthy run nevertheless."""
    simulation.driver.faults = ["late"]
    simulation.driver.late_seconds = 3 * DOUBT_SECONDS
    simulation.tick(2)
    assert simulation.driver.calls == ["prepare: late"]
    simulation.cluster.step = simulation.cluster.high_water = 50
    simulation.silenced = True
    simulation.tick(int(2 * DOUBT_SECONDS))
    assert simulation.store.open_incidents() == []
    simulation.tick(int(3 * DOUBT_SECONDS))
    assert simulation.cluster.generation == 1, "the call did take effect"
    assert simulation.cluster.state is JobState.RUNNING
    swept = simulation.store.of_run(RUN)[-1]
    assert (swept.alert, swept.action, swept.state) == (ALERT, Action.RESTART, State.DONE)
    assert simulation.our_starts == [0]
    assert simulation.cluster.violations == []


@pytest.mark.parametrize("jump", [0.0, 7200.0, -7200.0])
def test_a_hold_that_may_be_a_persons_or_a_late_calls_is_left_and_pages_once(
    simulation: Simulation, jump: float
) -> None:
    """SLURM has requeued the job, so the attempt that is held now is not the one that the call was about."""
    simulation.driver.faults = ["late"]
    simulation.driver.late_seconds = 3 * DOUBT_SECONDS
    simulation.tick(2)
    simulation.cluster.requeue_by_slurm()
    simulation.clock.jump += jump  # as where no remediator ran meanwhile
    simulation.tick(int(6 * DOUBT_SECONDS))
    assert simulation.cluster.state is JobState.HELD
    assert simulation.our_starts == []
    told = [each for each in simulation.store.of_run(RUN) if each.alert == ALERT]
    assert [(each.state, each.paging) for each in told] == [(State.ESCALATED, True)]
    assert "scontrol release 17" in told[0].reason


def test_a_job_about_which_a_person_was_paged_is_left_to_that_person(simulation: Simulation) -> None:
    simulation.driver.faults = ["none", "refused"]
    simulation.tick(10)
    assert simulation.cluster.state is JobState.HELD
    assert [each.paging for each in simulation.store.escalations()] == [True]
    simulation.tick(300, every=5)
    assert simulation.our_starts == []
    assert len(simulation.store.escalations()) == 1


def test_each_call_is_on_record_before_it_is_made_and_its_answer_after(simulation: Simulation) -> None:
    simulation.crash_at_name = "prepare: after call"
    simulation.tick(2)
    [unanswered] = simulation.store.calls.of_job("sim", "17")
    assert (unanswered.verb, unanswered.generation, unanswered.outcome) == ("prepare", 0, None)
    simulation.settle()
    calls = simulation.store.calls.of_job("sim", "17")
    assert [(each.verb, each.outcome) for each in calls] == [("prepare", None), ("commit", "accepted")]
