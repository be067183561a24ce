"""The remediator dies, the scheduler lies: what really started is read off the scheduler's own log."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS
from tests.unit.remediator.simulation import Make, Simulation, kills, spread
from trainwarden_remediator.drivers.driver import Absent, JobState
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, State
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation


def dies_after(simulation: Simulation, point: str) -> None:
    """Tick until the remediator dies at the named point; the process that comes back has done nothing yet."""
    simulation.crash_at_name = point
    while simulation.crashes == 0:
        simulation.tick()


both_kinds = pytest.mark.parametrize("two_phase", [True, False], ids=["two-phase", "one-call"])


@both_kinds
@pytest.mark.parametrize("crashed", [False, True], ids=["hung", "crashed"])
def test_a_broken_run_is_restarted_once_and_found_recovered(make: Make, two_phase: bool, crashed: bool) -> None:
    simulation = make(two_phase=two_phase)
    if crashed:
        simulation.cluster.crash()
    incidents = simulation.settle()
    assert simulation.our_starts == [0]
    assert [incident.state for incident in incidents] == [State.DONE]
    assert simulation.cluster.violations == []


@both_kinds
@pytest.mark.parametrize("fault", ["none", pytest.param("lost reply", marks=pytest.mark.nightly)])
@kills
def test_kill_9_at_every_point_still_leads_to_exactly_one_start(
    make: Make, two_phase: bool, fault: str, kills: int | None
) -> None:
    """S1, S5: before and after every commit and every call."""
    clean = make(two_phase=two_phase)
    clean.settle()
    assert len(clean.points) > 20
    for point in spread(len(clean.points), kills):
        simulation = make(two_phase=two_phase)
        simulation.crash_at = point
        simulation.driver.faults = [fault, fault]
        incidents = simulation.settle()
        where = simulation.points[point]
        assert simulation.crashes == 1, where
        assert simulation.our_starts == [0], where
        assert [incident.state for incident in incidents] == [State.DONE], where
        assert simulation.cluster.violations == [], where


@both_kinds
@kills
def test_kill_9_twice_around_the_calls_still_leads_to_exactly_one_start(
    make: Make, two_phase: bool, kills: int | None
) -> None:
    clean = make(two_phase=two_phase)
    clean.settle()
    calls = [index for index, name in enumerate(clean.points) if name.endswith(" call")]
    pairs = list(itertools.product(calls, (1, 3, 6)))
    for first, later in (pairs[each] for each in spread(len(pairs), kills)):
        simulation = make(two_phase=two_phase)
        simulation.crash_at = first
        simulation.tick(8)
        assert simulation.crashes == 1
        simulation.crash_at = len(simulation.points) + later
        incidents = simulation.settle()
        assert simulation.our_starts == [0]
        assert [incident.state for incident in incidents] == [State.DONE]
        assert simulation.cluster.violations == []


@both_kinds
@pytest.mark.parametrize("first", ["lost reply", "late", "twice", "dropped", "said yes, did nothing"])
@pytest.mark.parametrize(
    "second",
    ["none", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("late", "lost reply", "twice", "dropped"))],
)
def test_a_lying_scheduler_still_starts_the_job_exactly_once(
    make: Make, two_phase: bool, first: str, second: str
) -> None:
    simulation = make(two_phase=two_phase)
    simulation.driver.faults = [first, second]
    incidents = simulation.settle()
    assert simulation.our_starts == [0]
    assert [incident.state for incident in incidents] == [State.DONE]
    assert simulation.cluster.violations == []


def test_a_call_in_doubt_is_not_repeated_before_the_doubt_window_is_over(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.driver.faults = ["dropped"]
    simulation.tick(int(DOUBT_SECONDS))
    assert simulation.driver.calls == ["prepare: dropped"]
    simulation.clock.jump += 3600  # the wall clock cannot shorten it
    simulation.tick(0)
    assert simulation.driver.calls == ["prepare: dropped"]
    simulation.tick(2)
    assert simulation.driver.calls == ["prepare: dropped", "prepare: none"]


@both_kinds
def test_nothing_stays_in_doubt_once_the_scheduler_answers_again(make: Make, two_phase: bool) -> None:
    """L3: the call took effect, the scheduler went down before it could say so."""
    simulation = make(two_phase=two_phase)
    simulation.driver.faults = ["lost reply, then down"]
    simulation.tick(300, every=5)
    [incident] = simulation.store.open_incidents()
    assert incident.state is (State.IN_DOUBT if two_phase else State.COMMITTED)
    simulation.driver.down = False
    simulation.tick(5)
    assert simulation.our_starts == [0]
    lost = "lost reply, then down"
    assert simulation.driver.calls == ([f"prepare: {lost}", "commit: none"] if two_phase else [f"commit: {lost}"])


def recovers(simulation: Simulation) -> None:
    """The run goes on by itself: its step rises, and the alert is over."""
    simulation.cluster.high_water = 45
    simulation.cluster.step = 50


@both_kinds
def test_an_old_intent_does_not_end_a_run_that_has_recovered(make: Make, two_phase: bool) -> None:
    """The remediator dies right after the intent was written, and comes back an hour later."""
    simulation = make(two_phase=two_phase)
    dies_after(simulation, "CAPTURING to PREPARING: after commit")
    recovers(simulation)
    simulation.clock.elapsed += 3600
    incidents = simulation.settle()
    assert simulation.driver.calls == []
    assert [incident.state for incident in incidents] == [State.SUPPRESSED]
    assert simulation.cluster.state is JobState.RUNNING


@both_kinds
def test_a_call_is_not_repeated_on_a_run_that_has_recovered_meanwhile(make: Make, two_phase: bool) -> None:
    simulation = make(two_phase=two_phase)
    simulation.driver.faults = ["dropped"]
    simulation.tick(2)
    recovers(simulation)
    incidents = simulation.settle()
    assert len(simulation.driver.calls) == 1
    assert [incident.state for incident in incidents] == [State.SUPPRESSED]
    assert "not list it as active" in incidents[0].reason


@both_kinds
def test_a_step_beyond_the_one_of_the_decision_disproves_an_alert_that_still_stands(
    make: Make, two_phase: bool
) -> None:
    simulation = make(two_phase=two_phase)
    dies_after(simulation, "CAPTURING to PREPARING: after commit")
    simulation.cluster.step = simulation.cluster.high_water = 41  # the alert's next evaluation is yet to come
    incidents = simulation.settle()
    assert simulation.driver.calls == []
    assert (incidents[0].state, incidents[0].reason) == (
        State.SUPPRESSED,
        "the run goes on by itself: step 41 after 40",
    )


@both_kinds
@pytest.mark.parametrize("source", ["prometheus_down", "alertmanager_down"])
def test_nothing_follows_from_unknown_about_an_old_intent(make: Make, two_phase: bool, source: str) -> None:
    simulation = make(two_phase=two_phase)
    dies_after(simulation, "CAPTURING to PREPARING: after commit")
    setattr(simulation, source, True)
    simulation.tick(60, every=5)
    assert simulation.driver.calls == []
    assert len(simulation.store.open_incidents()) == 1
    setattr(simulation, source, False)
    simulation.settle()
    assert simulation.our_starts == [0]


@both_kinds
def test_a_call_that_takes_effect_late_on_a_recovered_run_still_leads_to_one_start(make: Make, two_phase: bool) -> None:
    """The attempt has been ended by us: now its next start is ours to give."""
    simulation = make(two_phase=two_phase)
    simulation.driver.faults = ["late"]
    simulation.tick(2)
    recovers(simulation)
    simulation.settle()
    assert simulation.our_starts == [0]
    assert simulation.cluster.state is JobState.RUNNING


def unanswered(simulation: Simulation) -> None:
    """The scheduler takes no call, and says nothing about it."""
    simulation.driver.faults = ["dropped"] * 10_000


def suspended(simulation: Simulation) -> None:
    """The job's first call is lost; then the job is suspended for good."""
    simulation.driver.faults = ["dropped"]
    simulation.tick()
    simulation.cluster.state = JobState.OTHER


def unreachable(simulation: Simulation) -> None:
    """The call takes effect, and the scheduler is never heard of again."""
    simulation.driver.faults = ["lost reply, then down"]


@pytest.mark.parametrize(("two_phase", "trouble"), [(False, unanswered), (True, suspended), (True, unreachable)])
def test_what_has_no_end_is_paged_and_left_alone(
    make: Make, two_phase: bool, trouble: Callable[[Simulation], None]
) -> None:
    simulation = make(two_phase=two_phase)
    trouble(simulation)
    simulation.tick(100, every=5)
    simulation.clock.elapsed += 1600
    simulation.tick(2)
    assert len(simulation.store.open_incidents()) == 1
    assert not simulation.store.escalations()
    simulation.clock.elapsed += 500
    simulation.tick(2)
    [(incident, events)] = simulation.store.with_events("run-1")
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert incident.reason.startswith("nothing could be done for 35 minutes: ")
    assert len(events) < 15, "only what changed is an event"
    calls = list(simulation.driver.calls)
    simulation.tick(20)
    assert simulation.driver.calls == calls
    assert simulation.cluster.violations == []


@both_kinds
@pytest.mark.parametrize("how", ["recovers", "ends", "lives on"])
def test_a_job_that_runs_on_after_a_crash_is_given_a_minute(make: Make, two_phase: bool, how: str) -> None:
    """An elastic launcher inside the job brings it back; or the last ranks take a few seconds to end."""
    simulation = make(two_phase=two_phase)
    simulation.cluster.run_state = "failed"
    simulation.tick(10)
    assert simulation.driver.calls == []
    if how == "recovers":
        simulation.cluster.run_state = "running"
        recovers(simulation)
        simulation.tick(100, every=5)
        assert simulation.driver.calls == []
        return
    if how == "ends":
        simulation.cluster.state = JobState.FAILED
    simulation.tick(2 if how == "ends" else 52)
    assert len(simulation.driver.calls) == 1


def test_a_job_that_can_be_neither_ended_nor_left_is_paged_until_it_goes_on(make: Make) -> None:
    """Suspended: nothing is decided, and nothing is lost either once it is resumed."""
    simulation = make(two_phase=True)
    simulation.cluster.state = JobState.OTHER
    simulation.tick(3)
    simulation.clock.elapsed += 1700
    simulation.tick(2)
    assert simulation.store.of_run("run-1") == []
    simulation.clock.elapsed += 200
    simulation.tick(5)
    [incident] = simulation.store.escalations()
    assert incident.reason == "nothing could be done for 30 minutes: the scheduler reports job 17 as other"
    assert simulation.driver.calls == []
    assert len(simulation.store.pending()) == 1
    simulation.cluster.state = JobState.RUNNING
    simulation.settle()
    assert simulation.our_starts == [0]
    assert simulation.store.escalations() == []


def test_runs_that_wait_for_the_same_are_one_page_that_names_them(make: Make) -> None:
    """A scheduler that is away for half an hour made a page for each run that had failed."""
    simulation = make(two_phase=True, runs=4)
    *same, late = simulation.clusters
    late.steps = True
    simulation.driver.down = True
    for each in same:
        each.crash()
    simulation.tick(3)
    simulation.clock.elapsed += 1800
    simulation.tick(5)
    [page] = simulation.store.escalations()
    assert page.reason == (
        "nothing could be done for 30 minutes about 3 runs: the scheduler is down (run-1); likewise run-2, run-3"
    )
    late.crash()
    simulation.tick(3)
    simulation.restart()
    simulation.clock.elapsed += 1700
    simulation.tick(5)
    assert [each.id for each in simulation.store.escalations()] == [page.id], "each run is paged about once"
    simulation.clock.elapsed += 200
    simulation.tick(5)
    [_, other] = simulation.store.escalations()
    assert (other.run_id, other.reason) == ("run-4", "nothing could be done for 30 minutes: the scheduler is down")
    simulation.driver.down = False
    simulation.settle()
    assert [[start.ours for start in each.starts] for each in simulation.clusters] == [[True]] * 4
    assert simulation.store.escalations() == [], "none of them waits any more"
    ended = [events[-1].detail for incident, events in simulation.store.with_events() if incident.id == page.id]
    assert ended == ["none of its runs waits any more"]


def test_a_page_ends_when_the_run_goes_on_by_itself(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.driver.faults = ["refused"]
    simulation.settle()
    assert len(simulation.store.escalations()) == 1
    recovers(simulation)
    simulation.tick(2)
    assert simulation.store.escalations() == []


@both_kinds
def test_the_next_start_waits_until_the_old_one_is_gone(make: Make, two_phase: bool) -> None:
    """S2."""
    simulation = make(two_phase=two_phase)
    simulation.tick(2)
    assert simulation.cluster.state is JobState.ENDING
    simulation.settle()
    assert simulation.cluster.violations == []
    assert simulation.our_starts == [0]


@both_kinds
@kills
def test_a_cancelled_job_is_never_revived(make: Make, two_phase: bool, kills: int | None) -> None:
    """S4: whenever its user cancels it."""
    for when in spread(12, kills):
        simulation = make(two_phase=two_phase)
        simulation.tick(when)
        before = list(simulation.our_starts)
        simulation.cluster.cancel()
        simulation.settle()
        assert simulation.cluster.violations == [], when
        assert simulation.our_starts == before, when
        assert simulation.cluster.state is JobState.CANCELLED, when


@both_kinds
def test_a_run_that_finishes_while_it_is_looked_at_is_left_alone(make: Make, two_phase: bool) -> None:
    """S4."""
    simulation = make(two_phase=two_phase)
    simulation.driver.down = True
    simulation.tick(3)
    simulation.cluster.complete()
    simulation.driver.down = False
    incidents = simulation.settle()
    assert simulation.our_starts == []
    assert [incident.state for incident in incidents] == [State.SUPPRESSED]


@both_kinds
def test_a_restart_by_somebody_else_is_adopted(make: Make, two_phase: bool) -> None:
    """S3: the intent is about the old start; the scheduler gave a new one before our call took effect."""
    simulation = make(two_phase=two_phase)
    simulation.driver.faults = ["dropped"]
    simulation.tick(1)
    simulation.cluster.requeue_by_slurm()
    incidents = simulation.settle()
    assert incidents[0].state is State.ADOPTED
    assert simulation.our_starts == []
    assert simulation.cluster.violations == []


@pytest.mark.parametrize("source", ["prometheus_down", "alertmanager_down"])
def test_nothing_is_called_while_the_facts_are_unknown(make: Make, source: str) -> None:
    simulation = make(two_phase=True)
    setattr(simulation, source, True)
    simulation.tick(120, every=5)
    assert simulation.driver.calls == []
    setattr(simulation, source, False)
    simulation.settle()
    assert simulation.our_starts == [0]


def test_a_silenced_alert_is_acted_on_when_the_silence_ends(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.silenced = True
    simulation.tick(10)
    assert simulation.driver.calls == []
    simulation.silenced = False
    simulation.settle()
    assert simulation.our_starts == [0]


@pytest.mark.parametrize("seconds", [1, 5])
def test_an_alert_that_goes_away_before_the_call_is_acted_on_when_it_is_back(make: Make, seconds: int) -> None:
    """Alertmanager restarts empty, or a silence comes and goes: the alert has the same beginning as before."""
    rule = Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=Backoff(initial=10))
    simulation = make(two_phase=True, policy=Policy("patient", {"stall": rule}))
    simulation.tick(2)
    assert [each.state for each in simulation.store.open_incidents()] == [State.PROPOSED]
    simulation.silenced = True
    simulation.clock.elapsed += 10
    simulation.tick(seconds)
    assert simulation.store.open_incidents() == []
    simulation.silenced = False
    simulation.settle()
    assert simulation.our_starts == [0]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_set_back_makes_no_delay_longer(make: Make, restarted: bool) -> None:
    rule = Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=Backoff(initial=30))
    simulation = make(policy=Policy("patient", {"stall": rule}))
    simulation.tick(10)
    simulation.clock.jump = -86_400.0
    if restarted:
        simulation.restart()
    simulation.tick(15)
    assert simulation.our_starts == [], "its delay lasts"
    simulation.tick(25)
    assert simulation.our_starts == [0]


@both_kinds
@pytest.mark.parametrize("mode", ["stall", "crash"])
def test_a_budget_of_n_gives_exactly_n_restarts_and_then_a_page(make: Make, two_phase: bool, mode: str) -> None:
    """S6, L4; the shipped default policy allows 3 restarts after a stall and 2 after a crash."""
    simulation = make(two_phase=two_phase)
    simulation.cluster.progress_after_start = False
    if mode == "crash":
        simulation.cluster.fails_after_start = True
        simulation.cluster.crash()
    for _ in range(12):
        simulation.settle()
        simulation.restart()
    limit = 3 if mode == "stall" else 2
    assert simulation.our_starts == list(range(limit))
    last = simulation.store.of_run("run-1")[-1]
    assert (last.state, last.paging) == (State.ESCALATED, True)
    assert [incident.id for incident in simulation.store.escalations()] == [last.id]
    assert [incident.state for incident in simulation.store.of_run("run-1")[:-1]] == [State.FAILED] * limit


def test_a_page_ends_when_a_newer_attempt_takes_over(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.driver.faults = ["refused"]
    incidents = simulation.settle()
    assert [(incident.state, incident.paging) for incident in incidents] == [(State.ESCALATED, True)]
    assert "refused" in incidents[0].reason
    simulation.cluster.requeue_by_slurm()
    simulation.tick(ticks := 10)
    assert simulation.store.escalations() == [], f"still paging after {ticks} s"


def test_a_hold_that_is_not_ours_is_left_and_somebody_is_paged(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.driver.faults = ["none", "dropped", "dropped"]
    simulation.tick(8)
    simulation.cluster.generation += 1  # a person requeued and held it once more
    [incident] = simulation.settle()
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert simulation.our_starts == []


def test_a_hold_from_before_our_first_call_is_not_released(make: Make) -> None:
    """The remediator dies after its intent; meanwhile a person requeues and holds the job to look at it."""
    simulation = make(two_phase=True)
    dies_after(simulation, "CAPTURING to PREPARING: after commit")
    simulation.cluster.requeue_hold(0, ended=False)
    [incident] = simulation.settle()
    assert simulation.driver.calls == []
    assert simulation.cluster.state is JobState.HELD
    assert (incident.state, incident.paging) == (State.ESCALATED, True)
    assert "held, and not by us" in incident.reason


def test_a_start_that_dies_before_the_run_reports_is_paged(make: Make) -> None:
    """Nobody else would say so: the record still shows the old attempt, whose alert is answered."""
    simulation = make(two_phase=True)
    simulation.cluster.dies_unheard = True
    incidents = simulation.settle()
    assert (incidents[0].state, incidents[0].paging) == (State.ESCALATED, True)
    assert simulation.our_starts == [0]


@pytest.mark.parametrize("held_back_by", ["the delay of its policy", "a storm"])
def test_a_job_that_the_scheduler_forgets_before_its_restart_begins_is_paged(
    make: Make, monkeypatch: pytest.MonkeyPatch, held_back_by: str
) -> None:
    """SLURM forgets a job that has ended after five minutes (MinJobAge)."""
    delay = None if held_back_by == "a storm" else Backoff(initial=600)
    rule = Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=delay)
    simulation = make(policy=Policy("patient", {"crash": rule}))
    if delay is None:
        simulation.store.switches.begin_storm("", "rack 7 is without power", lambda _connection: None)
    simulation.cluster.crash()
    simulation.tick(10)
    assert [each.state for each in simulation.store.open_incidents()] == [State.PROPOSED]
    monkeypatch.setattr(simulation.driver, "job", lambda _job_id: Absent("FAILED"))
    simulation.clock.elapsed += 600
    simulation.tick(5)
    [page] = simulation.store.escalations()
    assert page.reason.startswith("by the scheduler's accounting the job is FAILED, and its record is gone (MinJobAge)")
    assert simulation.driver.calls == []


def test_a_job_that_has_failed_and_is_forgotten_while_a_call_is_in_doubt_is_paged(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has taken nothing of the call, and answers again when the job is older than MinJobAge."""
    simulation.cluster.crash()
    simulation.driver.faults = ["dropped"]
    simulation.tick(2)
    assert [each.state for each in simulation.store.open_incidents()] == [State.IN_DOUBT]
    simulation.driver.down = True
    simulation.tick(600, every=10)
    simulation.driver.down = False
    monkeypatch.setattr(simulation.driver, "job", lambda _job_id: Absent("FAILED"))
    simulation.tick(90)
    [page] = simulation.store.escalations()
    assert page.reason.startswith("by the scheduler's accounting the job is FAILED, and its record is gone (MinJobAge)")


def test_a_restart_is_announced_to_the_attempt_only_with_the_call(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what was announced and never made, a later crash of the attempt would be taken for a restart."""
    simulation = make(two_phase=False)
    notice = tmp_path / "runs" / "run-1" / "_restart"
    notice.parent.mkdir(parents=True)
    simulation.runs_dir = tmp_path / "runs"
    simulation.restart()
    with monkeypatch.context() as patched:
        patched.setattr(simulation.driver, "boot", lambda: Unknown("the controller does not answer"))
        simulation.tick(10)
    assert (simulation.driver.calls, notice.exists()) == ([], False)
    simulation.settle()
    assert (simulation.our_starts, notice.exists()) == ([0], True)


def test_a_second_alert_about_an_attempt_that_we_replaced_states_that_it_was_us(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.cluster.dies_unheard = True  # so that the record still shows the old attempt
    first = simulation.settle()[0]
    [stalled] = simulation.alerts_now()
    timed_out = Alert({**stalled.labels, "alertname": "TrainRunTimedOut", "failure_mode": "timeout"}, stalled.starts_at)
    simulation.alerts_now = lambda: [timed_out]  # type: ignore[method-assign]  # another alert takes its place
    second = simulation.settle()[-1]
    assert second.state is State.SUPPRESSED
    assert second.reason == (
        f"this attempt has been restarted by the remediator itself already: incident {first.id} is ESCALATED"
    )


def test_recovery_means_to_pass_the_step_that_the_old_attempt_reached_in_its_grace_period(make: Make) -> None:
    simulation = make(two_phase=False)
    simulation.tick(1)
    assert [each.state for each in simulation.store.open_incidents()] == [State.VERIFYING]
    assert simulation.cluster.state is JobState.ENDING
    simulation.cluster.step = simulation.cluster.high_water = 60
    simulation.cluster.progress_after_start = False
    simulation.tick(1)
    simulation.alerts_now = list  # type: ignore[method-assign]  # the new attempt catches up, as nothing fires
    simulation.tick(10)
    assert simulation.cluster.step == 55
    [incident] = simulation.store.open_incidents()
    assert (incident.state, incident.step_before) == (State.VERIFYING, 60)
    simulation.cluster.step = 61
    assert simulation.settle()[0].state is State.DONE


def test_a_new_attempt_whose_step_rises_is_given_time_to_catch_up(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.cluster.progress_after_start = False
    simulation.tick(1)
    simulation.alerts_now = list  # type: ignore[method-assign]  # nothing fires while it catches up
    simulation.tick(20)
    for _ in range(20):
        simulation.clock.elapsed += 120
        simulation.cluster.step += 0.2
        simulation.tick()
    assert [each.state for each in simulation.store.open_incidents()] == [State.VERIFYING]
    simulation.clock.elapsed += 700  # and now it does not rise any more
    simulation.tick(2)
    assert simulation.store.of_run("run-1")[0].state is State.FAILED


def test_a_scheduler_that_is_never_heard_of_after_the_start_is_paged(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.cluster.queues_after_start = True
    simulation.tick(10)
    simulation.driver.down = True
    simulation.tick(2)
    simulation.clock.elapsed += 700
    simulation.tick(2)
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, incident.paging) == (State.ESCALATED, True)


def test_a_job_that_queues_for_long_is_given_time(make: Make) -> None:
    simulation = make(two_phase=True)
    simulation.cluster.queues_after_start = True
    simulation.tick(10)
    simulation.clock.elapsed += 3600
    simulation.tick(10)
    [incident] = simulation.store.open_incidents()
    assert incident.state is State.VERIFYING


def test_a_wall_clock_that_jumps_never_starts_anything_twice(make: Make) -> None:
    for jump in (-7200.0, 7200.0):
        simulation = make(two_phase=True)
        simulation.driver.faults = ["lost reply", "late"]
        for second in range(30):
            simulation.tick()
            simulation.clock.jump += jump if second % 2 else -jump
        simulation.settle()
        assert simulation.our_starts == [0]
        assert simulation.cluster.violations == []


@pytest.mark.parametrize(
    ("checkpoint", "text"),
    [(None, "no checkpoint is reported: it begins anew, and 40 steps may be lost"), (30.0, "10 steps are repeated")],
)
def test_the_decision_states_what_the_restart_loses(make: Make, checkpoint: float | None, text: str) -> None:
    simulation = make(two_phase=True)
    simulation.checkpoint_step = checkpoint
    [incident] = simulation.settle()
    assert incident.reason.endswith(text)
    assert incident.checkpoint_step == checkpoint


def test_restarts_of_all_modes_without_a_step_come_to_an_end(make: Make) -> None:
    """Stalls and crashes by turns: each mode has a budget of its own, and together they restarted ten times."""
    rule = Implementation(class_name="AlwaysRestartPolicy", max_retries=2)
    simulation = make(two_phase=True, policy=Policy("both", {"stall": rule, "crash": rule}))
    simulation.cluster.progress_after_start = False
    for number in range(6):
        simulation.cluster.fails_after_start = number % 2 == 0
        simulation.settle()
    assert len(simulation.our_starts) == 2
    assert "gained no step" in simulation.store.escalations()[-1].reason
