"""Anything may happen in any order; what the log of starts must never show is checked after every step.

The invariants, and where each is checked. The scheduler of the simulation keeps its own log of starts and notes by
itself what no caller may do; it does not know what the remediator believes.

- S1, at most one start of ours for each start that is replaced: `log_of_starts_has_no_double`, by the scheduler's log.
- S2, no start beside one that is still ending; S3, nothing is done to a newer start than the alert is about, nor to a
  job of somebody else under the same id; S4, nothing that is over is started; S5, no call without a durable intent:
  noted by `Cluster` and `FakeDriver` at each call, checked by `the_scheduler_saw_nothing_forbidden`. S5, no webhook is
  acknowledged before its alerts are durable: `webhooks_arrive_late_twice_cut_and_out_of_order`.
- S6, budgets, by mode and by the scheduler's log: `budgets_hold`, over any number of restarts of the remediator.
- S7, nothing is ended while frozen, silenced, in a storm, in a maintenance, in the mode observe, or while another
  source says that it works: `_why_forbidden`, at each call that ends an attempt. Unapproved: test_price.py.
- S8, labels reach no command, SQL or markup: test_slurm_driver.py, test_store.py, test_notify.py.
- S9, the chain of the log is whole and each call that the scheduler saw is on record: `teardown`.
- S10, a node that a person has drained is left: test_crash_points.py, test_drains.py: no run of this file drains.
- L1, once faults stop each alert gets its answer with a reason, and each intent its end; L2, also an alert that no
  webhook has brought; L3, no call is in doubt once the window of doubt is over: `teardown`.
- L4, whatever waits for a person pages until it needs none: `what_waits_for_a_person_pages`.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.remediator.simulation import DOUBT_SECONDS, ENDING_TICKS, Cluster, Crash, Simulation
from trainwarden.record.clock import to_iso
from trainwarden_remediator.act.storm import ALERT as STORM
from trainwarden_remediator.database import audit
from trainwarden_remediator.database.database import FILE
from trainwarden_remediator.database.schema import calls
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.examine.objections import INACTIVE
from trainwarden_remediator.incidents.incident import Action, Alert, Incident, State
from trainwarden_remediator.incidents.webhook import read_delivery
from trainwarden_remediator.policies.limits import Once
from trainwarden_remediator.policies.policy import load_policy
from trainwarden_remediator.store.switches import freeze, unfreeze

MEMORY = Path("/dev/shm")  # the file system is not what is tested
FAULTS = ["lost reply", "late", "twice", "dropped", "said yes, did nothing", "refused"]
CHANGES = ["crash", "requeue", "cancel", "complete", "recovers", "does not recover", "queues", "starts"]
LIMITS = {"stall": 3, "crash": 2}
# Unix seconds; the wall clock begins at 1,800,000,000 and jumps by up to two hours.
MAINTENANCES = [(1_799_995_000, 1_799_995_400), (1_800_000_040, 1_800_000_100), (1_800_004_000, 1_800_004_400)]
DEFAULT = load_policy("default")
POLICY = replace(
    DEFAULT,
    limits=DEFAULT.limits.model_copy(
        update={"maintenance": [Once.model_validate({"from": to_iso(a), "to": to_iso(b)}) for a, b in MAINTENANCES]}
    ),
)


class AnyOrder(RuleBasedStateMachine):
    """Runs under the shipped default policy with maintenances, with everything that may go wrong."""

    two_phase = True
    runs = 1

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
        self.simulation = Simulation(
            self.folder, two_phase=self.two_phase, runs=self.runs, policy=POLICY, remember=True
        )
        self.simulation.cluster_name = "ours"
        self.simulation.driver.forbidden = self._why_forbidden
        self.seen: list[Alert] = []
        self.frozen: dict[str, float | None] = {}
        self.pace = 0

    def _why_forbidden(self, run_id: str) -> str | None:
        simulation, now = self.simulation, self.simulation.clock.now()
        ends = [end for scope, end in self.frozen.items() if scope in ("", run_id)]
        if any(end is None or now < end for end in ends):
            return "it is frozen"
        if simulation.silenced or run_id in simulation.silenced_runs:
            return "its alert is silenced"
        if any(begin <= now < end for begin, end in MAINTENANCES):
            return "there is a maintenance"
        if simulation.store.switches.storm("ours") is not None:
            return "there is a storm"
        cluster = next(each for each in simulation.clusters if each.run_id == run_id)
        if run_id in simulation.at_work and cluster.state is JobState.RUNNING:
            return "its tensor cores work"
        return "the mode is observe" if simulation.policies.mode == "observe" else None

    @invariant()
    def a_little_time_passes(self) -> None:
        """Between two events; with a pace of 0 they are of one second."""
        self.simulation.tick(self.pace)

    @rule(pace=st.integers(0, 3))
    def events_come_faster_or_slower(self, pace: int) -> None:
        self.pace = pace

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.simulation.tick(seconds)

    @rule(scope=st.sampled_from(["", "run-1"]), seconds=st.sampled_from([None, 30.0]))
    def a_person_freezes(self, scope: str, seconds: float | None) -> None:
        end = None if seconds is None else self.simulation.clock.now() + seconds
        self.simulation.switch(lambda connection, now: freeze(connection, scope, "alice", "maintenance", now, end))
        self.frozen[scope] = end

    @rule()
    def a_person_goes_on(self) -> None:
        self.simulation.switch(lambda connection, _: (unfreeze(connection, ""), unfreeze(connection, "run-1")))
        self.simulation.resume()
        self.frozen.clear()

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
        self.simulation.silenced_runs ^= {self.simulation.clusters[number % self.runs].run_id}

    @rule(number=st.integers(0, 9))
    def the_gpus_of_a_run_work_or_rest(self, number: int) -> None:
        self.simulation.at_work ^= {self.simulation.clusters[number % self.runs].run_id}

    @rule(number=st.integers(0, 9))
    def a_run_of_the_same_name_fails_in_another_cluster(self, number: int) -> None:
        self.simulation.foreign ^= {self.simulation.clusters[number % self.runs].run_id}

    @rule(jump=st.floats(-7200, 7200))
    def the_wall_clock_jumps(self, jump: float) -> None:
        self.simulation.clock.jump += jump

    @rule(what=st.sampled_from(CHANGES), number=st.integers(0, 9))
    def a_job_changes(self, what: str, number: int) -> None:
        cluster = self.simulation.clusters[number % self.runs]
        if what == "crash":
            cluster.crash()
        elif what == "requeue":
            cluster.requeue_by_slurm()
        elif what == "cancel":
            cluster.cancel()
        elif what == "complete":
            cluster.complete()
        elif what in ("queues", "starts"):
            cluster.queues_after_start = what == "queues"
            if what == "starts":
                cluster.get_its_turn()
        else:
            cluster.progress_after_start = what == "recovers"

    @rule(number=st.integers(0, 9), after_release=st.booleans())
    def a_person_holds_a_job_as_soon_as_it_waits(self, number: int, after_release: bool) -> None:
        cluster = self.simulation.clusters[number % self.runs]
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
        assert [cluster.violations for cluster in self.simulation.clusters if cluster.violations] == []

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
            assert sum(start.ours for start in cluster.starts) <= sum(LIMITS.values()), "S6"

    @invariant()
    def what_waits_for_a_person_pages(self) -> None:
        for cluster in self.simulation.clusters:
            for incident in self._of_run(cluster):
                needed = incident.state is State.ESCALATED and not _needs_nobody(incident, cluster)
                assert incident.paging or not needed, f"L4: {incident}"

    def _of_run(self, cluster: Cluster) -> list[Incident]:
        return self.simulation.store.of_run(cluster.run_id)

    def teardown(self) -> None:
        """Let the faults stop; then L1, L2, L3 and S9 hold, and the rest still."""
        try:
            self._end()
        finally:
            self.simulation.close()
            shutil.rmtree(self.folder)

    def _end(self) -> None:
        simulation = self.simulation
        simulation.crash_at = None
        simulation.driver.faults = []
        simulation.driver.down = simulation.prometheus_down = simulation.alertmanager_down = False
        simulation.silenced_runs.clear()
        simulation.foreign.clear()
        simulation.at_work.clear()
        self.the_policies_are_read_again("act")
        late = any(cluster.late for cluster in simulation.clusters)
        simulation.tick(2 * ENDING_TICKS)
        simulation.clock.elapsed += DOUBT_SECONDS * (2 if late else 1)
        simulation.tick(2 * ENDING_TICKS)
        in_doubt = [each for each in simulation.store.open_incidents() if each.state is State.IN_DOUBT]
        assert in_doubt == [], "L3"
        for _ in range(3):
            for cluster in simulation.clusters:
                cluster.queues_after_start, cluster.to_be_held = False, None
                cluster.get_its_turn()
            self.a_person_goes_on()
            simulation.settle(hurry=True)
        self.the_scheduler_saw_nothing_forbidden()
        self.log_of_starts_has_no_double()
        self.budgets_hold()
        self.what_waits_for_a_person_pages()
        assert simulation.store.pending() == [], "L1"
        assert simulation.store.open_incidents() == [], "L1"
        for cluster in simulation.clusters:
            held = cluster.state is JobState.HELD and cluster.held_by_requeue
            told = any(each.run_id == cluster.run_id for each in simulation.store.escalations())
            assert told or not held, "left held by a call of ours, and nobody is paged"
            acted = {each.cluster for each in self._of_run(cluster) if each.action is not Action.NONE}
            assert acted <= {"ours"}, "S3: because of another cluster"
        for alert in simulation.alerts_now():
            of_run = simulation.store.of_run(alert.run_id or "", "ours")
            of_run = [each for each in of_run if each.attempt == alert.attempt]
            assert of_run, f"L2: no answer to {alert}"
            # One that says "not active" would be a lost alert.
            assert of_run[-1].reason not in ("", INACTIVE), "L1"
        simulation.switch(lambda connection, _: self._is_on_record(connection))

    def _is_on_record(self, connection: sa.Connection) -> None:
        verdict = audit.verify(connection)
        assert (verdict.broken, verdict.unchained) == (None, 0), "S9"
        rows = connection.execute(sa.select(calls.c.incident_id, calls.c.verb))
        assert not Counter(self.simulation.driver.made) - Counter((row[0], row[1]) for row in rows), "S9: of a call"


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
    return incident.alert == STORM or cluster.over or newer or passed


class AnyOrderInOneCall(AnyOrder):
    """The same for a scheduler such as the local launcher."""

    two_phase = False


class AnyOrderOfSeveral(AnyOrder):
    """Three runs, each with a job and a node of its own."""

    runs = 3

    @rule(number=st.integers(1, 2), shared=st.booleans())
    def a_job_is_on_the_node_of_another(self, number: int, shared: bool) -> None:  # hypothesis names it
        self.simulation.clusters[number].nodes = ("n1",) if shared else (f"n{number + 1}",)


class SeveralInOneCall(AnyOrderOfSeveral):
    """The same for the local launcher."""

    two_phase = False


class Forgetful(AnyOrder):
    """A scheduler that forgets what it has acknowledged, and so uses counts of starts and ids of jobs again."""

    @rule(seconds=st.integers(1, 9), number=st.integers(0, 9))
    def the_scheduler_forgets_what_it_has_acknowledged(self, seconds: int, number: int) -> None:
        cluster = self.simulation.clusters[number % self.runs]
        if len(cluster.past) >= seconds and not cluster.over:
            cluster.forget(cluster.past[-seconds])
            self.simulation.driver.boots += 1

    @precondition(lambda self: self.simulation.clock.elapsed > 20)
    @rule(number=st.integers(0, 9))
    def the_id_of_a_lost_job_is_given_to_another(self, number: int) -> None:
        cluster = self.simulation.clusters[number % self.runs]
        if not cluster.over:
            cluster.give_away()
            self.simulation.driver.boots += 1


class ForgetfulOfSeveral(Forgetful, AnyOrderOfSeveral):
    """The same of three runs."""


# Of 500 histories; those of three runs take four times as long.
SHARES: dict[type[AnyOrder], int] = {
    AnyOrder: 160,
    AnyOrderInOneCall: 100,
    Forgetful: 160,
    AnyOrderOfSeveral: 30,
    SeveralInOneCall: 20,
    ForgetfulOfSeveral: 30,
}
_LONG = int(os.environ.get("TRAINWARDEN_HISTORIES", "10000")) / sum(SHARES.values())
_SETTINGS = settings(stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("machine", SHARES)
@pytest.mark.parametrize("times", [1.0, pytest.param(_LONG, marks=pytest.mark.long)])
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], times: float) -> None:
    case = machine.TestCase
    case.settings = settings(_SETTINGS, max_examples=max(1, int(SHARES[machine] * times)))
    case("runTest").runTest()
