"""Restarts that come back as a new job: one start, whatever is lost, late or killed between the stop and the start."""

from __future__ import annotations

import pytest

from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, ENDING_TICKS, RUN
from tests.unit.remediator.simulation import Make, Simulation, kills, spread
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, ScheduledJob, Shape
from trainwarden_remediator.incidents.incident import Action, State
from trainwarden_remediator.store.exclusions import Exclusion
from trainwarden_remediator.store.switches import freeze

both_shapes = pytest.mark.parametrize("shape", [Shape.SUBMIT, Shape.RESUBMIT], ids=["submit", "resubmit"])
FAULTS = ["lost reply", "late", "twice", "dropped", "said yes, did nothing"]


def check_one_start(simulation: Simulation, about: str = "") -> None:
    assert simulation.our_starts == [0], about
    assert simulation.cluster.violations == [], about
    assert [each.state for each in simulation.store.of_run(RUN)] == [State.DONE], about
    held = [each for each in simulation.cluster.submissions.values() if each.state is JobState.HELD]
    assert held == [], f"{about}: a job is left held"


def sweep(simulation: Simulation) -> None:
    """Let the sweeper have its turn."""
    simulation.clock.elapsed += 2 * DOUBT_SECONDS
    simulation.tick(3)


@both_shapes
@pytest.mark.parametrize("crashed", [False, True], ids=["hung", "crashed"])
def test_a_run_comes_back_once_as_a_new_job(make: Make, shape: Shape, crashed: bool) -> None:
    simulation = make(shape=shape)
    if crashed:
        simulation.cluster.crash()
    [incident] = simulation.settle()
    check_one_start(simulation)
    assert incident.job_id == "17"
    assert incident.shape == shape.value
    assert incident.successor == simulation.cluster.job_id != "17"
    calls = [] if crashed else ["prepare: none"]
    assert simulation.driver.calls == [*calls, *(["submit: none"] if shape is Shape.RESUBMIT else []), "commit: none"]
    log = [event.detail for event in simulation.store.with_events(RUN)[0][1]]
    assert any(f"job 17 comes back as job {incident.successor}" in detail for detail in log)


@both_shapes
@pytest.mark.parametrize("crashed", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["hung", "crashed"])
@pytest.mark.parametrize("fault", ["none", pytest.param("lost reply", marks=pytest.mark.nightly)])
@kills
@pytest.mark.timeout(1200)
def test_kill_9_at_every_point_still_leads_to_exactly_one_start(
    make: Make, shape: Shape, crashed: bool, fault: str, kills: int | None
) -> None:
    """S1, S2, S5: before and after every commit and every call."""
    clean = make(shape=shape)
    if crashed:
        clean.cluster.crash()
    clean.settle(hurry=True)
    assert len(clean.points) > 20
    for point in spread(len(clean.points), kills):
        simulation = make(shape=shape)
        simulation.crash_at = point
        simulation.driver.faults = [fault, fault, fault]
        if crashed:
            simulation.cluster.crash()
        simulation.settle(hurry=True)
        assert simulation.crashes == 1, simulation.points[point]
        sweep(simulation)
        check_one_start(simulation, simulation.points[point])


@both_shapes
@pytest.mark.parametrize("first", FAULTS)
@pytest.mark.parametrize(
    "second", ["late", *(pytest.param(each, marks=pytest.mark.nightly) for each in FAULTS if each != "late")]
)
@pytest.mark.slow
def test_no_answer_of_the_scheduler_leads_to_two_starts_or_none(
    make: Make, shape: Shape, first: str, second: str
) -> None:
    simulation = make(shape=shape)
    simulation.driver.faults = [first, second, second]
    simulation.settle(hurry=True)
    sweep(simulation)
    check_one_start(simulation)


def test_of_two_jobs_that_came_to_be_one_is_kept_and_the_other_never_starts(make: Make) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    simulation.driver.faults = ["none", "late"]
    simulation.driver.late_seconds = DOUBT_SECONDS + 30  # after the second was submitted, and released
    [incident] = simulation.settle()
    sweep(simulation)
    check_one_start(simulation)
    [other] = simulation.cluster.submissions.values()
    assert other.state is JobState.CANCELLED
    assert incident.successor == simulation.cluster.job_id != other.job_id
    assert simulation.driver.calls[-1] == "discard: none"


@both_shapes
def test_the_next_job_waits_until_the_old_one_is_gone_however_long_that_takes(make: Make, shape: Shape) -> None:
    """The window of doubt is over by then; that the call had ended the job is known nevertheless."""
    simulation = make(shape=shape)
    simulation.tick(3)
    assert simulation.cluster.state is JobState.ENDING
    simulation.cluster.ending = int(3 * DOUBT_SECONDS)
    simulation.settle()
    check_one_start(simulation)
    assert simulation.clock.elapsed > 3 * DOUBT_SECONDS


@both_shapes
@kills
def test_a_user_who_cancels_has_the_last_word(make: Make, shape: Shape, kills: int | None) -> None:
    """S4, but where the job is being ended already: then there is nothing left to cancel."""
    for when in spread(12, kills):
        simulation = make(shape=shape)
        simulation.tick(when)
        simulation.cluster.cancel()
        simulation.settle()
        assert simulation.cluster.violations == [], when
        if simulation.cluster.over:
            assert simulation.cluster.state in (JobState.CANCELLED, JobState.ENDING), when


@both_shapes
def test_a_cancel_long_after_a_stop_that_had_no_effect_is_its_users(make: Make, shape: Shape) -> None:
    simulation = make(shape=shape)
    simulation.driver.faults = ["dropped"]
    while not simulation.driver.calls:
        simulation.tick()
    simulation.prometheus_down = True  # the call must not be repeated
    simulation.tick(int(DOUBT_SECONDS) + 2 * ENDING_TICKS)
    simulation.cluster.cancel()
    assert simulation.cluster.over
    simulation.prometheus_down = False
    [incident] = simulation.settle()
    assert incident.state is State.ADOPTED
    assert simulation.our_starts == []


@both_shapes
def test_a_run_that_failed_by_itself_is_not_submitted_while_it_is_frozen(make: Make, shape: Shape) -> None:
    """S7: no call came before the submission, so all that spoke for it is read again."""
    simulation = make(shape=shape)
    simulation.cluster.crash()
    simulation.crash_at_name = "PREPARED to COMMITTED: after commit"
    while not simulation.crashes:
        simulation.tick()
    simulation.switch(lambda connection, now: freeze(connection, "", "alice", "maintenance", now, None))
    simulation.tick(30)
    assert simulation.driver.calls == []
    assert simulation.our_starts == []


def test_a_submitted_job_that_a_person_cancels_is_not_replaced(make: Make) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    simulation.crash_at_name = "submit: after call"
    while not simulation.crashes:
        simulation.tick()
    [job] = simulation.cluster.submissions.values()
    job.state = JobState.CANCELLED
    [incident] = simulation.settle()
    assert incident.state is State.ADOPTED
    assert simulation.our_starts == []


def test_a_user_who_submits_the_run_meanwhile_is_left_to_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    listed = simulation.driver.jobs
    theirs = ScheduledJob("99", RUN, 0, JobState.RUNNING, "running")
    while not simulation.cluster.submissions:
        simulation.tick()
        if simulation.cluster.state is JobState.ENDING:
            simulation.crash_at_name = "submit: after call"
    monkeypatch.setattr(simulation.driver, "jobs", lambda: [*listed(), theirs])  # type: ignore[misc]
    incident = simulation.settle()[0]
    assert incident.state is State.ADOPTED
    assert "job 99" in simulation.store.with_events(RUN)[0][1][-1].detail
    sweep(simulation)
    assert simulation.our_starts == []
    [job] = simulation.cluster.submissions.values()
    assert job.state is JobState.CANCELLED


@both_shapes
def test_so_is_one_whose_old_job_the_scheduler_has_forgotten_meanwhile(
    make: Make, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    """slurmctld forgets a job five minutes after its end (MinJobAge)."""
    simulation = make(shape=shape)
    while simulation.cluster.state is not JobState.ENDING:
        simulation.tick()
    shown, theirs = simulation.driver.job, ScheduledJob("99", RUN, 0, JobState.RUNNING, "running", user=1000)

    def job(job_id: str) -> Reading:
        return Absent() if simulation.cluster.state is JobState.CANCELLED and job_id == "17" else shown(job_id)

    monkeypatch.setattr(simulation.driver, "job", job)
    monkeypatch.setattr(simulation.driver, "jobs", lambda: [theirs])
    assert simulation.settle()[0].state is State.ADOPTED
    assert simulation.our_starts == []


def test_a_persons_hold_of_the_new_job_is_kept_and_paged(make: Make) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    simulation.cluster.queues_after_start = True
    simulation.cluster.to_be_held = JobState.WAITING
    simulation.settle()
    simulation.tick(5)
    assert simulation.cluster.violations == []
    assert simulation.cluster.state is JobState.HELD
    [page] = simulation.store.escalations()
    assert "held, and not by us" in page.reason


def test_a_persons_hold_that_was_laid_while_the_controller_did_not_answer_is_kept_and_paged(make: Make) -> None:
    """It was released, and is held when it is seen next: by nobody else."""
    simulation = make(shape=Shape.RESUBMIT)
    simulation.cluster.queues_after_start = True
    simulation.driver.faults = ["none", "none", "answers, then down"]
    while not simulation.cluster.starts:
        simulation.tick()
    simulation.cluster.user_hold()
    simulation.driver.down = False
    simulation.settle()
    assert simulation.driver.calls == ["prepare: none", "submit: none", "commit: answers, then down"]
    assert simulation.cluster.violations == []
    assert simulation.cluster.state is JobState.HELD
    [page] = simulation.store.escalations()
    assert "held, and not by us" in page.reason


@both_shapes
def test_each_new_job_counts_in_the_budget_of_its_run(make: Make, shape: Shape) -> None:
    """S6: two after a crash by the default policy, whatever the ids of the jobs."""
    simulation = make(shape=shape)
    simulation.cluster.fails_after_start = True
    simulation.cluster.progress_after_start = False
    simulation.cluster.crash()
    simulation.settle()
    assert simulation.our_starts == [0, 1]
    incidents = simulation.store.of_run(RUN)
    assert [each.action for each in incidents] == [Action.RESTART, Action.RESTART, Action.ESCALATE]
    assert len({each.job_id for each in incidents}) == 3
    assert simulation.cluster.violations == []


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (Shape.SUBMIT, "job 17 may have ended, and nothing started in its place: look at it, and submit it again"),
        (Shape.RESUBMIT, "job 17 may have ended, and nothing started in its place: look at it, and submit it again"),
        (None, "job 17 may be held: look at it, and release it (scontrol release 17)"),
    ],
    ids=["submit", "resubmit", "requeue"],
)
def test_a_scheduler_that_never_answers_again_is_paged_with_what_may_have_become_of_the_job(
    make: Make, shape: Shape | None, says: str
) -> None:
    simulation = make(shape=shape)
    simulation.driver.faults = ["lost reply, then down"]
    simulation.tick(2400, every=30)
    [incident] = simulation.store.escalations()
    assert incident.reason == f"nothing could be done for 35 minutes: the scheduler does not answer; {says}"


@both_shapes
def test_a_refused_call_is_paged_and_the_page_outlives_the_end_of_the_old_job(make: Make, shape: Shape) -> None:
    """That the old job is cancelled is the remediator's doing, and no end of the page."""
    simulation = make(shape=shape)
    simulation.driver.faults = ["none", "refused"]
    [incident] = simulation.settle()
    assert incident.state is State.ESCALATED
    simulation.tick(2 * ENDING_TICKS)
    assert simulation.cluster.state is JobState.CANCELLED
    assert [each.id for each in simulation.store.escalations()] == [incident.id]


@both_shapes
def test_a_call_that_ends_the_job_late_ends_no_earlier_page_of_the_run(make: Make, shape: Shape) -> None:
    """The job is cancelled by the remediator, and not by its user: both pages are for a person."""
    simulation = make(shape=shape)
    simulation.driver.down = True
    simulation.tick(1900, every=50)
    [earlier] = simulation.store.escalations()
    simulation.driver.down = False
    simulation.driver.faults = ["late"]
    while not simulation.cluster.late:
        simulation.tick()
    simulation.driver.down = True
    simulation.tick(2500, every=50)
    assert simulation.cluster.state is JobState.CANCELLED
    simulation.driver.down = False
    simulation.tick(3)
    assert earlier.id in [each.id for each in simulation.store.escalations()]


def test_a_held_job_that_the_controller_has_forgotten_is_submitted_again(make: Make) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    simulation.crash_at_name = "COMMITTED to COMMITTED: after commit"
    while not simulation.crashes:
        simulation.tick()
    [incident] = simulation.store.open_incidents()
    assert incident.successor
    simulation.cluster.submissions.clear()
    simulation.driver.boots += 1
    simulation.settle()
    check_one_start(simulation)
    assert simulation.driver.calls.count("submit: none") == 2


@pytest.mark.parametrize("kept", [False, True], ids=["both forgotten", "the new job kept"])
def test_an_attempt_whose_end_the_controller_has_forgotten_is_ended_again(make: Make, kept: bool) -> None:
    """With it, the controller may have lost the job that was submitted for it, or not."""
    simulation = make(shape=Shape.RESUBMIT)
    saved = simulation.cluster.save()
    simulation.crash_at_name = "COMMITTED to COMMITTED: after commit"
    while not simulation.crashes:
        simulation.tick()
    assert simulation.store.open_incidents()[0].successor
    simulation.cluster.forget(saved)
    if not kept:
        simulation.cluster.submissions.clear()
    simulation.driver.boots += 1
    simulation.settle()
    check_one_start(simulation)
    assert simulation.driver.calls.count("prepare: none") == 2
    assert simulation.driver.calls.count("submit: none") == (1 if kept else 2)


def test_a_held_job_that_is_gone_without_a_trace_is_paged_and_not_replaced(make: Make) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    simulation.crash_at_name = "COMMITTED to COMMITTED: after commit"
    while not simulation.crashes:
        simulation.tick()
    simulation.cluster.submissions.clear()
    [incident] = simulation.settle()
    assert incident.state is State.ESCALATED
    assert "is not there any more" in incident.reason
    assert simulation.driver.calls.count("submit: none") == 1


def test_a_reading_that_is_older_than_the_new_job_does_not_give_it_up(make: Make) -> None:
    simulation = make(shape=Shape.RESUBMIT)
    simulation.crash_at_name = "submit: before call"
    while not simulation.crashes:
        simulation.tick()
    simulation.driver.answer_with_what_was(1.5 * DOUBT_SECONDS)
    simulation.settle()
    sweep(simulation)
    check_one_start(simulation)


def test_a_start_is_not_given_again_by_a_scheduler_that_was_started_again(make: Make) -> None:
    """Of a scheduler without holds: its head may have lost the job that it had started."""
    simulation = make(shape=Shape.SUBMIT)
    simulation.driver.faults = ["none", "dropped"]
    while "commit: dropped" not in simulation.driver.calls:
        simulation.tick()
    simulation.driver.boots += 1
    [incident] = simulation.settle()
    assert incident.state is State.ESCALATED
    assert "was started again" in incident.reason
    assert simulation.our_starts == []


def test_a_job_that_a_person_submits_under_the_old_id_after_a_new_head_is_left(make: Make) -> None:
    """Ray takes an id once, and forgets that with its head."""
    simulation = make(shape=Shape.SUBMIT)
    running = simulation.cluster.save()
    while not simulation.cluster.ending:
        simulation.tick()
    simulation.cluster.forget((*running[:3], simulation.clock.elapsed))
    simulation.driver.boots += 1
    [incident] = simulation.settle()
    assert simulation.driver.calls == ["prepare: none"]
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "this start is left alone. If it hangs, end it, and submit it again" in incident.reason
    assert simulation.cluster.shown(simulation.cluster.job_id).state is JobState.RUNNING


def test_nodes_that_the_old_job_avoids_for_a_while_are_taken_back_from_the_new_one(make: Make) -> None:
    """Those that its user has named stay."""
    simulation = make(shape=Shape.RESUBMIT)
    [incident] = simulation.settle()
    assert incident.successor
    simulation.cluster.excluded = {"of-its-user", "bad1"}
    simulation.store.exclusions.note("sim", simulation.cluster.job_id, {"bad1": Exclusion(incident.id, 0.0)})
    simulation.cluster.crash()
    simulation.settle()
    assert simulation.cluster.job_id != incident.successor
    assert simulation.cluster.excluded == {"of-its-user"}
