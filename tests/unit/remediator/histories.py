"""Anything may happen in any order; what the log of starts must never show is checked after every step.

The invariants, and where each is checked. The scheduler of the simulation keeps its own log of starts and notes by
itself what no caller may do; it does not know what the remediator believes.

- S1, at most one start of ours for each start that is replaced: `log_of_starts_has_no_double`, by the scheduler's log.
- S2, no start beside one that is still ending; S3, nothing is done to a newer start than the alert is about, nor to a
  job of somebody else under the same id; S4, nothing that is over is started; S5, no call without a durable intent:
  noted by `Cluster` and `FakeDriver` at each call, checked by `the_scheduler_saw_nothing_forbidden`. S5, no webhook is
  acknowledged before its alerts are durable: `webhooks_arrive_late_twice_cut_and_out_of_order`.
- S6, budgets, by mode and by the scheduler's log: `budgets_hold`, over any number of restarts of the remediator.
- S7, nothing is ended while frozen, silenced, in a storm, in a maintenance, in the mode observe, unapproved, vetoed or
  before the end of its countdown, nor while another source says that it works, nor for a record of another user:
  `_why_forbidden`, at each call that ends an attempt.
- S8, labels reach no command, SQL or markup: test_slurm_driver.py, test_store.py, test_notify.py.
- S9, the chain of the log is whole and each call that the scheduler saw is on record: `teardown`.
- S10, a node that a person has drained is left: `AnyOrderOfBadNodes`; test_crash_points.py, test_drains.py.
- L1, once faults stop each alert gets its answer with a reason, and each intent its end; L2, also an alert that no
  webhook has brought; L3, no call is in doubt once the window of doubt is over: `teardown`. L3, none is repeated before
  that, noted by `FakeDriver`, and none is given up: `what_may_come_late_is_awaited`.
- L4, whatever waits for a person pages until it needs none: `what_waits_for_a_person_pages`.

`AnyOrder` proves these of one run whose scheduler ends and starts by two calls. machines.py has those of other
schedulers: with a call for both (S2 and the doubt about single calls are its own), or that give a job a new id; of
several runs, S3, S6 and S7 also across runs and storms; that are forgetful, S1 to S3 where a scheduler forgets what it
has acknowledged; of calls that take effect after all; and of nodes with defects. mutations.py names the faults in the
remediator that they have been seen to find.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.session import memory
from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, ENDING_TICKS, Cluster
from tests.unit.remediator.simulation import Crash, Simulation
from trainwarden.record.clock import to_iso
from trainwarden_remediator.act.sweep import ALERT as HELD_JOB
from trainwarden_remediator.database import audit
from trainwarden_remediator.database.database import FILE
from trainwarden_remediator.database.schema import calls
from trainwarden_remediator.drivers.driver import JobState, RestartTarget
from trainwarden_remediator.examine.objections import INACTIVE
from trainwarden_remediator.incidents.incident import OPEN_STATES, STORM, WAITING_RUNS, Action, Alert, Incident, State
from trainwarden_remediator.incidents.incident_rows import acknowledge
from trainwarden_remediator.incidents.price import APPROVED, CONTRADICTED, VETOED
from trainwarden_remediator.incidents.webhook import read_delivery
from trainwarden_remediator.policies.limits import Once
from trainwarden_remediator.policies.policy import Policy, load_policy
from trainwarden_remediator.store.answers import answer_approval
from trainwarden_remediator.store.switches import freeze, unfreeze

FAULTS = ["lost reply", "late", "very late", "twice", "dropped", "said yes, did nothing", "refused"]
CHANGES = ["crash", "hang", "error", "requeue", "cancel", "complete", "queues", "starts"]
NEXT = ["recovers", "does not recover", "fails again"]
SWITCHES = ["freeze", "silence", "observe", "maintenance", "works", "cancel", "requeue", "crash", "owner"]
LIMITS = {"stall": 3, "crash": 2}
VETO_SECONDS = 20.0
MOMENT_SECONDS = 45
PATIENCE_SECONDS, DEATHS = 1800.0, 4
_QUIET_TICKS = 4
# Unix seconds; the wall clock begins at 1,800,000,000 and jumps by up to two hours.
MAINTENANCES = [(1_799_995_000, 1_799_995_400), (1_800_000_150, 1_800_000_200), (1_800_004_000, 1_800_004_400)]
# What a restart that ends an attempt which runs needs: nothing, an approval, or a while in which it may be vetoed.
NEEDS = {"nothing": {}, "approval": {"approval_above_gpu_hours": 0.0}}
NEEDS["veto"] = {**NEEDS["approval"], "veto_seconds": VETO_SECONDS}
DEFAULT = load_policy("default")
# How many histories had what, by machine.
STATISTICS: dict[str, Counter[str]] = {}


def _policy(needs: str) -> Policy:
    windows = [Once.model_validate({"from": to_iso(a), "to": to_iso(b)}) for a, b in MAINTENANCES]
    changes = {"maintenance": windows, **NEEDS[needs]}
    return replace(DEFAULT, limits=DEFAULT.limits.model_copy(update=changes))


POLICIES = {needs: _policy(needs) for needs in NEEDS}


class AnyOrder(RuleBasedStateMachine):
    """Runs under the shipped default policy with maintenances, with everything that may go wrong."""

    two_phase = True
    runs = 1
    # Of all jobs, where the scheduler knows users.
    user: int | None = 1000
    # By what a restart needs.
    policies = POLICIES

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=memory()))
        self.simulation = Simulation(self.folder, two_phase=self.two_phase, runs=self.runs, policy=POLICIES["nothing"])
        self.simulation.cluster_name = "ours"
        self.simulation.driver.forbidden = self._why_forbidden
        self.seen: list[Alert] = []
        self.frozen: dict[str, float | None] = {}
        self.needs = "nothing"
        self.answers: dict[str, str] = {}
        self.vouched: set[str] = set()
        self.acknowledged: set[str] = set()
        self.happened: Counter[str] = Counter()
        self.pace = 0

    @initialize(
        needs=st.sampled_from(["nothing", "nothing", "nothing", "approval", "veto"]),
        then=st.sampled_from(NEXT),
        capture=st.sampled_from([0, 0, 4]),
        pace=st.integers(0, 2),
    )
    def a_history_begins(self, needs: str, then: str, capture: float, pace: int) -> None:
        simulation, self.needs, self.pace = self.simulation, needs, pace
        simulation.policies.take(replace(simulation.policies, default=self.policies[needs]))
        simulation.captures.seconds = capture
        for cluster in simulation.clusters:
            cluster.user = self.user  # from the start, as a job's user never changes: an old answer has it too
            _goes_on(cluster, then)

    def _why_forbidden(self, target: RestartTarget) -> str | None:
        """Return why the attempt must not be ended now, by what this history has done and what nobody can miss."""
        simulation, run_id = self.simulation, target.run_id
        cluster = self._cluster_of(run_id)
        if simulation.silenced or run_id in simulation.silenced_runs:
            return "its alert is silenced"
        if why := self._switched(run_id):
            return why
        if cluster.user is not None and simulation.owners.get(run_id) not in (None, cluster.user):
            return "the record is of another user"
        if simulation.is_behind or simulation.driver.is_behind or cluster.state is not JobState.RUNNING:
            return None
        if cluster.steps:
            return "it makes steps"
        if cluster.run_state == "running" and not cluster.hangs:
            return "it works, and the alert was about an earlier attempt"
        if run_id in simulation.at_work and cluster.attempt_key not in self.vouched:
            return "its tensor cores work"
        return self._unapproved(target.incident)

    def _switched(self, run_id: str) -> str | None:
        simulation, now = self.simulation, self.simulation.clock.now()
        ends = [end for scope, end in self.frozen.items() if scope in ("", run_id)]
        if any(end is None or now < end for end in ends):
            return "it is frozen"
        if any(begin <= now < end for begin, end in MAINTENANCES):
            return "there is a maintenance"
        if simulation.store.switches.storm("ours") is not None:
            return "there is a storm"
        return "the mode is observe" if simulation.policies.mode == "observe" else None

    def _unapproved(self, incident_id: str) -> str | None:
        answer = self.answers.get(incident_id)
        if self.needs == "nothing" or answer == APPROVED:
            return None
        if self.needs == "approval" or answer == VETOED:
            return "nobody has approved it" if answer is None else "it is vetoed"
        began = min(at for at, each, _ in self.simulation.states if each == incident_id)
        return "its countdown runs" if self.simulation.clock.elapsed - began < VETO_SECONDS else None

    def _cluster_of(self, run_id: str) -> Cluster:
        return next(each for each in self.simulation.clusters if each.run_id == run_id)

    def _numbered(self, number: int) -> Cluster:
        return self.simulation.clusters[number % self.runs]

    @invariant()
    def a_little_time_passes(self) -> None:
        """Between two events; with a pace of 0 they are of one second."""
        self.simulation.tick(self.pace)

    @rule(pace=st.integers(0, 3))
    def events_come_faster_or_slower(self, pace: int) -> None:
        self.pace = pace

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self._pass(seconds)

    @rule(moment=st.sampled_from(["decided", "called", "in doubt", "held", "given", "verified", "paged"]))
    def it_comes_to(self, moment: str) -> None:
        """Let time pass until the next event meets a certain moment, if that comes."""
        simulation = self.simulation
        seen, calls_before = len(simulation.states), len(simulation.driver.made)
        states = {
            "decided": (State.PROPOSED, State.CAPTURING),
            "in doubt": (State.IN_DOUBT,),
            "given": (State.VERIFYING,),
            "verified": (State.DONE, State.FAILED),
            "paged": (State.ESCALATED,),
        }

        def has_come() -> bool:
            if moment == "called":
                return len(simulation.driver.made) > calls_before
            if moment == "held":
                return any(each.state is JobState.HELD for each in simulation.clusters)
            return any(state in states[moment] for _, _, state in simulation.states[seen:])

        self._await(has_come)

    def _await(self, has_come: Callable[[], bool], answer: str | None = None) -> None:
        """Let time pass until something has come, as long as anything may come at all; `answer` what waits for that."""
        simulation = self.simulation

        def is_over() -> bool:
            if answer is not None and self.needs != "nothing":
                self.a_person_answers(answer)
            quiet = not simulation.store.open_incidents() and not simulation.store.pending()
            return has_come() or (quiet and not simulation.alerts_now())

        self._pass(MOMENT_SECONDS, is_over)

    def _pass(self, seconds: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let so many seconds pass, several at once while nothing happens: the process is paused, or slow."""
        simulation = self.simulation
        end, quiet, before = simulation.clock.elapsed + seconds, 0, None
        while simulation.clock.elapsed < end and not is_over():
            if quiet > _QUIET_TICKS:
                simulation.clock.elapsed += min(3, max(0, end - simulation.clock.elapsed - 1))
            simulation.tick()
            now = len(simulation.states), len(simulation.driver.calls), [each.state for each in simulation.clusters]
            quiet, before = (quiet + 1 if now == before else 0), now

    @rule(
        number=st.integers(0, 9),
        hangs=st.booleans(),
        then=st.sampled_from(NEXT),
        quietly=st.booleans(),
        answer=st.sampled_from([APPROVED, APPROVED, VETOED]),
    )
    def a_run_fails_and_is_started_again(
        self, number: int, hangs: bool, then: str, quietly: bool, answer: str = APPROVED
    ) -> None:
        """Unless that takes too long, or is hindered; what it does then may make it be restarted again."""
        cluster = self._numbered(number)
        if quietly:
            self._let_everything_work()
        if hangs:
            cluster.hang()
        else:
            cluster.crash()
        _goes_on(cluster, then)
        starts = len(cluster.starts)
        self._await(lambda: len(cluster.starts) > starts or cluster.over, answer=answer if quietly else None)

    def _let_everything_work(self) -> None:
        simulation = self.simulation
        simulation.driver.down = simulation.prometheus_down = simulation.alertmanager_down = False
        simulation.silenced_runs.clear()
        simulation.at_work.clear()
        simulation.owners.clear()
        self.a_person_goes_on()
        self.the_policies_are_read_again("act")

    @precondition(lambda self: self.two_phase)
    @rule(number=st.integers(0, 9))
    def a_call_takes_effect_on_the_start_that_the_scheduler_gives(self, number: int) -> None:
        cluster = self._numbered(number)
        self.simulation.driver.faults = ["late"]
        self._await(lambda: bool(cluster.to_come))
        cluster.requeue_by_slurm()

    @rule(what=st.sampled_from(SWITCHES), number=st.integers(0, 9))
    def a_run_hangs_and_something_happens_right_before_it_is_ended(self, what: str, number: int) -> None:
        cluster = self._numbered(number)
        self._let_everything_work()
        cluster.hang()
        self.simulation.captures.meanwhile = lambda: self._switch(what, number)
        self._await(lambda: self.simulation.captures.meanwhile is None, answer=APPROVED)

    @rule(number=st.integers(0, 9), seconds=st.integers(1, 40), runs=st.booleans())
    def a_run_is_requeued_before_its_alert_is_examined(self, number: int, seconds: int, runs: bool) -> None:
        """Its new attempt works, and has not come as far as the one before, whose alert fires on for a while.

        With `runs` the scheduler alone shows the new attempt by then: Prometheus has not scraped the record since.
        """
        simulation, cluster = self.simulation, self._numbered(number)
        if cluster.state is not JobState.RUNNING:
            return
        self._let_everything_work()
        simulation.catch_up()
        cluster.hang()
        _goes_on(cluster, "does not recover")
        simulation.see_what_was(ENDING_TICKS + seconds, runs=runs)
        simulation.prometheus_down = True
        self.happened["evidence behind"] += runs
        attempt = cluster.attempt
        cluster.requeue_by_slurm()
        simulation.tick(ENDING_TICKS + 1)
        if cluster.attempt > attempt:
            cluster.hangs = False
        simulation.prometheus_down = False
        self._pass(seconds)

    @rule(number=st.integers(0, 9))
    def the_remediator_dies_again_and_again_while_the_scheduler_is_away(self, number: int) -> None:
        """An alert that waits pages all the same once its patience is over."""
        simulation, run_id = self.simulation, self._numbered(number).run_id
        self._let_everything_work()
        self._numbered(number).hang()
        simulation.driver.down = True
        for _ in range(DEATHS):
            simulation.tick(2)
            simulation.clock.elapsed += PATIENCE_SECONDS / (DEATHS - 1)
            simulation.tick(2)
            simulation.restart()
        waiting = {each.alert.run_id for each in simulation.store.pending() if each.alert.cluster == "ours"}
        assert run_id not in waiting - self._told(), "L4: nobody is paged, however often the remediator has died"
        simulation.driver.down = False

    @rule(what=st.sampled_from(SWITCHES), number=st.integers(0, 9))
    def something_happens_right_before_the_next_call(self, what: str, number: int) -> None:
        """While the scheduler describes the job, which is the last that is done before its attempt is ended."""
        self.simulation.captures.meanwhile = lambda: self._switch(what, number)

    def _switch(self, what: str, number: int) -> None:
        simulation, cluster = self.simulation, self._numbered(number)
        if what == "freeze":
            self.a_person_freezes("", None)
        elif what == "silence":
            simulation.silenced_runs.add(cluster.run_id)
        elif what == "observe":
            self.the_policies_are_read_again("observe")
        elif what == "maintenance":
            self.a_maintenance_begins(0)
        elif what == "works":
            simulation.at_work.add(cluster.run_id)
        elif what == "owner":
            self._change_owner(cluster)
        else:
            self._change_job(cluster, what)

    @rule(which=st.integers(0, 2))
    def a_maintenance_begins(self, which: int) -> None:
        """By the wall clock, which may have to be set forwards or back for that."""
        clock = self.simulation.clock
        clock.jump += MAINTENANCES[which][0] - clock.now() + 1

    @rule(scope=st.sampled_from(["", "run-1"]), seconds=st.sampled_from([None, 30.0]))
    def a_person_freezes(self, scope: str, seconds: float | None) -> None:
        end = None if seconds is None else self.simulation.clock.now() + seconds
        self.simulation.switch(lambda connection, now: freeze(connection, scope, "alice", "maintenance", now, end))
        self.frozen[scope] = end
        self.happened["freezes"] += 1

    @rule()
    def a_person_goes_on(self) -> None:
        self.simulation.switch(lambda connection, _: (unfreeze(connection, ""), unfreeze(connection, "run-1")))
        self.simulation.resume()
        self.frozen.clear()

    @rule(answer=st.sampled_from([APPROVED, APPROVED, VETOED]))
    def a_person_answers(self, answer: str) -> None:
        """Approve or veto what waits for it."""
        simulation = self.simulation
        waits = (State.PROPOSED,) if answer == APPROVED else (State.PROPOSED, State.CAPTURING, State.PREPARING)
        waiting = [each for each in simulation.store.open_incidents() if each.state in waits and each.approval]
        contradicted = [each for each in simulation.store.escalations() if each.approval == CONTRADICTED]
        for incident in [*waiting, *(contradicted if answer == APPROVED else ())]:
            if self._answer(incident, answer):
                self.answers[incident.id] = answer
                self.happened[answer] += 1
                if incident.approval == CONTRADICTED:
                    self.vouched.add(incident.attempt_key or "")
                    self.acknowledged.add(incident.id)

    def _answer(self, incident: Incident, answer: str) -> bool:
        """Return whether the answer counts."""
        problems: list[str | None] = []
        self.simulation.switch(
            lambda connection, now: problems.append(answer_approval(connection, incident.id, answer, "alice", now))
        )
        return problems == [None]

    @rule(number=st.integers(0, 9))
    def a_person_acknowledges(self, number: int) -> None:
        ended: list[Incident] = []
        run_id = self._numbered(number).run_id
        self.simulation.switch(lambda connection, now: ended.extend(acknowledge(connection, run_id, "alice", now)))
        self.acknowledged |= {each.id for each in ended}

    @rule(mode=st.sampled_from(["act", "observe"]))
    def the_policies_are_read_again(self, mode: str) -> None:
        self.simulation.policies.take(replace(self.simulation.policies, mode=mode))

    @rule(after=st.integers(0, 25))
    def the_remediator_dies(self, after: int) -> None:
        self.simulation.crash_at = len(self.simulation.points) + after

    @rule(faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3))
    def the_scheduler_will_lie(self, faults: list[str]) -> None:
        self.simulation.driver.faults = faults

    @rule(seconds=st.integers(2, 30))
    def the_scheduler_is_behind(self, seconds: int) -> None:
        """Its answers are older than a call that was made meanwhile."""
        if not self.simulation.driver.down:
            self.simulation.driver.answer_with_what_was(seconds)

    @rule(seconds=st.integers(2, 40), runs=st.booleans())
    def prometheus_is_behind(self, seconds: int, runs: bool) -> None:
        """Alerts, and perhaps runs, are of an earlier attempt although the scheduler has begun another one."""
        if not self.simulation.prometheus_down:
            self.simulation.see_what_was(seconds, runs=runs)
            self.happened["evidence behind"] += 1

    @rule(what=st.sampled_from(["driver", "prometheus", "alertmanager"]))
    def something_goes_away_or_comes_back(self, what: str) -> None:
        simulation = self.simulation
        if what == "driver":
            simulation.driver.down = not simulation.driver.down
        elif what == "prometheus":
            simulation.prometheus_down = not simulation.prometheus_down
        else:
            simulation.alertmanager_down = not simulation.alertmanager_down

    @rule(number=st.integers(0, 9))
    def a_silence_begins_or_ends(self, number: int) -> None:
        self.simulation.silenced_runs ^= {self._numbered(number).run_id}

    @rule(number=st.integers(0, 9))
    def the_gpus_of_a_run_work_or_rest(self, number: int) -> None:
        self.simulation.at_work ^= {self._numbered(number).run_id}

    @rule(number=st.integers(0, 9))
    def the_record_is_of_another_user_or_of_its_own(self, number: int) -> None:
        self._change_owner(self._numbered(number))

    def _change_owner(self, cluster: Cluster) -> None:
        owners = self.simulation.owners
        owners[cluster.run_id] = 1001 if owners.get(cluster.run_id, 1000) == 1000 else 1000

    @rule(number=st.integers(0, 9))
    def a_run_of_the_same_name_fails_in_another_cluster(self, number: int) -> None:
        self.simulation.foreign ^= {self._numbered(number).run_id}

    @rule(jump=st.floats(-7200, 7200))
    def the_wall_clock_jumps(self, jump: float) -> None:
        self.simulation.clock.jump += jump

    @rule(what=st.sampled_from(CHANGES), number=st.integers(0, 9))
    def a_job_changes(self, what: str, number: int) -> None:
        self._change_job(self._numbered(number), what)

    def _change_job(self, cluster: Cluster, what: str) -> None:
        if what in ("queues", "starts"):
            cluster.queues_after_start = what == "queues"
            if what == "starts":
                cluster.get_its_turn()
            return
        changes = {
            "crash": cluster.crash,
            "hang": cluster.hang,
            "error": cluster.write_error,
            "requeue": cluster.requeue_by_slurm,
            "cancel": cluster.cancel,
            "complete": cluster.complete,
        }
        changes[what]()

    @rule(then=st.sampled_from(NEXT), number=st.integers(0, 9))
    def the_next_start_goes_otherwise(self, then: str, number: int) -> None:
        _goes_on(self._numbered(number), then)

    @rule(number=st.integers(0, 9), after_release=st.booleans())
    def a_person_holds_a_job_as_soon_as_it_waits(self, number: int, after_release: bool) -> None:
        cluster = self._numbered(number)
        cluster.to_be_held = JobState.WAITING if after_release else JobState.HELD
        cluster.queues_after_start = cluster.queues_after_start or after_release

    @rule(data=st.data(), copies=st.integers(1, 3), cut=st.integers(0, 2), dies=st.sampled_from([None, None, 0, 1]))
    def webhooks_arrive_late_twice_cut_and_out_of_order(
        self, data: st.DataObject, copies: int, cut: int, dies: int | None
    ) -> None:
        simulation = self.simulation
        now = [*simulation.alerts_now(), *simulation.alerts_of_others()]
        self.seen += [alert for alert in now if alert not in self.seen]
        if not self.seen:
            return
        picked = data.draw(st.lists(st.sampled_from(self.seen), min_size=1, max_size=4))
        delivery = read_delivery(webhook(picked, cut), "ours")
        saved, simulation.crash_at = simulation.crash_at, None if dies is None else len(simulation.points) + dies
        try:
            for _ in range(copies):
                simulation.store.receive(delivery)
        except Crash:
            simulation.restart()  # it was not acknowledged
        else:
            durable = _keys(self.folder)
            assert all(alert.key in durable for alert in delivery.firing), "S5: acknowledged, and not durable"
        simulation.crash_at = saved

    @invariant()
    def the_scheduler_saw_nothing_forbidden(self) -> None:
        found = [cluster.violations for cluster in self.simulation.clusters if cluster.violations]
        assert found == [], found

    @invariant()
    def log_of_starts_has_no_double(self) -> None:
        for cluster in self.simulation.clusters:
            ours = [(start.generation, start.began) for start in cluster.starts if start.ours]
            assert len(ours) == len(set(ours)), "S1"
            restarts = [each for each in self._of_run(cluster) if each.action is Action.RESTART]
            assert len({each.attempt_key for each in restarts}) == len(restarts), "S1, on record"

    @invariant()
    def budgets_hold(self) -> None:
        for cluster in self.simulation.clusters:
            used = Counter(each.mode for each in self.simulation.store.past_restarts(cluster.run_id))
            assert all(used.get(mode, 0) <= limit for mode, limit in LIMITS.items()), "S6, on record"
            ours = Counter(start.replaced for start in cluster.starts if start.ours)
            # Of both modes: an attempt that is to be ended for a stall may crash before the call takes effect.
            assert sum(ours[mode] for mode in LIMITS) <= sum(LIMITS.values()), "S6"
            fruitless = [start for start in cluster.starts if start.ours and start.replaced in LIMITS]
            fruitless = [start for start in fruitless if start.step == cluster.high_water]
            # What an old reading showed counts less: the run seems to have gained steps since.
            most = sum(LIMITS.values()) if self.happened["evidence behind"] else max(LIMITS.values())
            assert len(fruitless) <= most, "S6, without a step"

    @invariant()
    def what_may_come_late_is_awaited(self) -> None:
        """In doubt lasts until a call can take no effect any more, or a person is to look."""
        for cluster in self.simulation.clusters:
            for incident in (self.simulation.store.incident(each) for each in cluster.to_come):
                awaited = incident.state in OPEN_STATES or incident.state is State.ESCALATED
                assert awaited, f"L3: given up while its call may still take effect: {incident}"

    @invariant()
    def what_waits_for_a_person_pages(self) -> None:
        for cluster in self.simulation.clusters:
            for incident in self._of_run(cluster):
                needed = incident.state is State.ESCALATED and not _needs_nobody(incident, cluster)
                needed = needed and incident.id not in self.acknowledged
                assert incident.paging or not needed, f"L4: {incident}"

    def _of_run(self, cluster: Cluster) -> list[Incident]:
        return self.simulation.store.of_run(cluster.run_id)

    def teardown(self) -> None:
        """Let the faults stop; then L1, L2, L3 and S9 hold, and the rest still."""
        try:
            self._end()
        finally:
            note(self._on_record())
            self._count()
            self.simulation.close()
            shutil.rmtree(self.folder)

    def _end(self) -> None:
        simulation = self.simulation
        simulation.crash_at = simulation.captures.meanwhile = None
        simulation.driver.faults = []
        simulation.catch_up()
        simulation.foreign.clear()
        for cluster in simulation.clusters:
            _goes_on(cluster, "recovers")
        self._let_everything_work()
        late = any(cluster.late for cluster in simulation.clusters)
        simulation.tick(2 * ENDING_TICKS)
        simulation.clock.elapsed += DOUBT_SECONDS * (2 if late else 1)
        simulation.tick(2 * ENDING_TICKS)
        in_doubt = [each for each in simulation.store.open_incidents() if each.state is State.IN_DOUBT]
        assert in_doubt == [], "L3"
        for _ in range(6):
            for cluster in simulation.clusters:
                cluster.queues_after_start, cluster.to_be_held = False, None
                cluster.get_its_turn()
            self.a_person_goes_on()
            self.a_person_answers(APPROVED)
            # A clock that was set back puts a restart off by as much: no fault lasts for ever.
            ahead = max((each.not_before for each in simulation.store.open_incidents()), default=0.0)
            simulation.clock.jump += max(0.0, ahead - simulation.clock.now())
            simulation.clock.elapsed += 60  # held jobs are looked for each minute
            simulation.settle(hurry=True)
            queued = any(each.state is JobState.WAITING for each in simulation.clusters)
            if not (self._waiting() or simulation.store.open_incidents() or queued):
                break
        self.the_scheduler_saw_nothing_forbidden()
        self.log_of_starts_has_no_double()
        self.budgets_hold()
        self.what_waits_for_a_person_pages()
        assert self._waiting() == set(), "L1"
        assert simulation.store.open_incidents() == [], "L1"
        for cluster in simulation.clusters:
            held = cluster.state is JobState.HELD and cluster.held_by_requeue
            assert not held or cluster.run_id in self._told(), "left held by a call of ours, and nobody is paged"
            # A held job is found in a scheduler, which is of no other cluster.
            of_alerts = (each for each in self._of_run(cluster) if each.alert != HELD_JOB)
            acted = {each.cluster for each in of_alerts if each.action is not Action.NONE}
            assert acted <= {"ours"}, "S3: because of another cluster"
        for alert in simulation.alerts_now():
            of_run = simulation.store.of_run(alert.run_id or "", "ours")
            of_run = [each for each in of_run if each.attempt == alert.attempt]
            # It waits where the scheduler has forgotten the attempt: the page is about the start that is left.
            assert of_run or alert.run_id in self._told(), f"L2: no answer to {alert}"
            if not of_run:
                continue
            # One that says "not active" would be a lost alert; one that joined another has no answer of its own.
            of_run = [each for each in of_run if each.alert == alert.label("alertname")] or of_run
            assert of_run[-1].reason not in ("", INACTIVE), "L1"
        simulation.switch(lambda connection, _: self._is_on_record(connection))

    def _waiting(self) -> set[str | None]:
        """Return the runs whose alerts await a decision.

        Without those that only a person can clear up, as where two sources contradict each other for good: they page.
        """
        return {each.alert.run_id for each in self.simulation.store.pending()} - self._told()

    def _told(self) -> set[str]:
        """Return the runs of which a person knows: they page, or it has acknowledged that."""
        known = [each for each in self.simulation.store.escalations() if each.paging]
        ours = (each for cluster in self.simulation.clusters for each in self._of_run(cluster))
        told = {each.run_id for each in known} | {each.run_id for each in ours if each.id in self.acknowledged}
        joint = (each for each in self.simulation.store.of_run("") if each.alert == WAITING_RUNS)
        named = [each.reason for each in joint if each.paging or each.id in self.acknowledged]
        return told | {each.run_id for each in self.simulation.clusters if any(each.run_id in one for one in named)}

    def _on_record(self) -> str:
        """Return what the remediator has on record, for whoever reads a history that has failed."""
        lines = [str(each) for each in self.simulation.clusters]
        for incident, events in self.simulation.store.with_events():
            lines.append(f"{incident.run_id} attempt {incident.attempt}, {incident.alert}: {incident.state.value}")
            lines += [f"    {each.time:.0f} {each.state} {each.detail}" for each in events]
        return "\n".join(lines)

    def _is_on_record(self, connection: sa.Connection) -> None:
        verdict = audit.verify(connection)
        assert (verdict.broken, verdict.unchained) == (None, 0), "S9"
        rows = connection.execute(sa.select(calls.c.incident_id, calls.c.verb))
        assert not Counter(self.simulation.driver.made) - Counter((row[0], row[1]) for row in rows), "S9: of a call"

    def _count(self) -> None:
        found, simulation = STATISTICS.setdefault(type(self).__name__, Counter()), self.simulation
        starts = max(sum(start.ours for start in cluster.starts) for cluster in simulation.clusters)
        states = {state for _, _, state in simulation.states}
        found["histories"] += 1
        found.update(f"starts of ours >= {number}" for number in range(1, starts + 1))
        had = {
            "in doubt": State.IN_DOUBT in states,
            "escalated": State.ESCALATED in states,
            "late calls": any(": late" in call for call in simulation.driver.calls),
            "requeued by the scheduler": any(not each.ours for one in simulation.clusters for each in one.starts),
            "deaths": simulation.crashes > 0,
            **{what: count > 0 for what, count in self.happened.items()},
        }
        found.update(what for what, happened in had.items() if happened)


def _goes_on(cluster: Cluster, then: str) -> None:
    cluster.progress_after_start, cluster.fails_after_start = then == "recovers", then == "fails again"


def webhook(alerts: list[Alert], cut: int) -> bytes:
    """Return the body by which Alertmanager delivers alerts."""
    found = [
        {"status": "firing", "labels": dict(alert.labels), "startsAt": to_iso(alert.starts_at or 0.0)}
        for alert in alerts
    ]
    return json.dumps({"version": "4", "truncatedAlerts": cut, "alerts": found}).encode()


def _keys(folder: Path) -> set[str]:
    connection = sqlite3.connect(folder / FILE)
    try:
        return {key for (key,) in connection.execute("SELECT key FROM alerts")}
    finally:
        connection.close()


def _needs_nobody(incident: Incident, cluster: Cluster) -> bool:
    """Return whether the run needs no person because of an incident, by the truth of the cluster."""
    newer = incident.attempt is not None and cluster.attempt > incident.attempt
    passed = incident.step_before is not None and cluster.high_water > incident.step_before
    return incident.alert in (STORM, WAITING_RUNS) or cluster.over or newer or passed
