"""Anything may happen in any order; what the log of starts must never show is checked after every step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.remediator.simulation import Cluster, Simulation
from trainwarden_remediator import audit
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incident import Action, Alert
from trainwarden_remediator.objections import INACTIVE
from trainwarden_remediator.receive import Delivery
from trainwarden_remediator.switches import freeze, unfreeze

FAULTS = ["lost reply", "late", "twice", "dropped", "said yes, did nothing", "refused"]
CHANGES = ["crash", "requeue", "cancel", "complete", "hold", "recovers", "does not recover"]
LIMITS = {"stall": 3, "crash": 2}


class AnyOrder(RuleBasedStateMachine):
    """Runs under the shipped default policy, with everything that may go wrong."""

    two_phase = True
    runs = 1

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.simulation = Simulation(self.folder, two_phase=self.two_phase, runs=self.runs)
        self.seen: list[Alert] = []
        self.forbidden = False

    @property
    def ends(self) -> str:
        """The call that ends an attempt."""
        return "prepare" if self.two_phase else "commit"

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            before = len(self.simulation.driver.calls)
            held_back = self.forbidden or self.simulation.store.switches.storm("") is not None
            self.simulation.tick()
            made = [call for call in self.simulation.driver.calls[before:] if call.startswith(self.ends)]
            assert not (made and held_back), f"S7: {made} while nothing may be ended"

    @rule(scope=st.sampled_from(["", "run-1"]))
    def a_person_freezes(self, scope: str) -> None:
        self.simulation.switch(lambda connection, now: freeze(connection, scope, "alice", "maintenance", now, None))
        self.forbidden = self.forbidden or scope == "" or self.runs == 1

    @rule()
    def a_person_goes_on(self) -> None:
        self.simulation.switch(lambda connection, _: (unfreeze(connection, ""), unfreeze(connection, "run-1")))
        self.simulation.resume()
        self.forbidden = False

    @rule(after=st.integers(0, 25))
    def the_remediator_dies(self, after: int) -> None:
        self.simulation.crash_at = len(self.simulation.points) + after

    @rule(faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3))
    def the_scheduler_will_lie(self, faults: list[str]) -> None:
        self.simulation.driver.faults = faults

    @rule(what=st.sampled_from(["driver", "prometheus", "alertmanager", "silence"]))
    def something_goes_away_or_comes_back(self, what: str) -> None:
        simulation = self.simulation
        if what == "driver":
            simulation.driver.down = not simulation.driver.down
        elif what == "prometheus":
            simulation.prometheus_down = not simulation.prometheus_down
        elif what == "alertmanager":
            simulation.alertmanager_down = not simulation.alertmanager_down
        else:
            simulation.silenced = not simulation.silenced

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
        elif what == "hold":
            cluster.user_hold()
        elif what == "complete":
            cluster.complete()
        else:
            cluster.progress_after_start = what == "recovers"

    @rule(data=st.data(), copies=st.integers(1, 3), cut=st.integers(0, 2))
    def webhooks_arrive_late_twice_cut_and_out_of_order(self, data: st.DataObject, copies: int, cut: int) -> None:
        self.seen += [alert for alert in self.simulation.alerts_now() if alert not in self.seen]
        if self.seen:
            picked = data.draw(st.lists(st.sampled_from(self.seen), min_size=1, max_size=4))
            saved, self.simulation.crash_at = self.simulation.crash_at, None
            for number in range(copies):
                self.simulation.store.receive(Delivery(str(number), tuple(picked), cut))
            self.simulation.crash_at = saved

    @invariant()
    def nothing_forbidden_happened(self) -> None:
        for cluster in self.simulation.clusters:
            self._nothing_forbidden_happened_to(cluster)

    def _nothing_forbidden_happened_to(self, cluster: Cluster) -> None:
        store, run_id = self.simulation.store, cluster.run_id
        assert cluster.violations == []  # S2, S3, S4, S5
        ours = [start.generation for start in cluster.starts if start.ours]
        assert len(ours) == len(set(ours))  # S1
        restarts = [each for each in store.of_run(run_id) if each.action is Action.RESTART]
        assert len({each.attempt_key for each in restarts}) == len(restarts)
        used = Counter(each.mode for each in store.past_restarts(run_id))
        assert all(used.get(mode, 0) <= limit for mode, limit in LIMITS.items())
        assert len(ours) <= sum(LIMITS.values())  # S6

    def teardown(self) -> None:
        """L1: once the faults stop, every alert gets its answer and every intent its end. S9: the log is whole."""
        simulation = self.simulation
        simulation.crash_at = None
        simulation.driver.faults = []
        simulation.driver.down = simulation.prometheus_down = simulation.alertmanager_down = False
        simulation.silenced = False
        try:
            for _ in range(3):
                self.a_person_goes_on()
                simulation.settle()
            self.nothing_forbidden_happened()
            assert simulation.store.pending() == []
            assert simulation.store.open_incidents() == []
            simulation.switch(lambda connection, _: _is_whole(connection))
            for cluster in simulation.clusters:
                held = cluster.state is JobState.HELD and cluster.held_by_requeue
                told = any(each.run_id == cluster.run_id for each in simulation.store.escalations())
                assert told or not held, "left held by a call of ours, and nobody is paged"
            for alert in simulation.alerts_now():  # an answer that says "not active" would be a lost alert
                of_run = simulation.store.of_run(alert.run_id or "")
                assert [each for each in of_run if each.attempt == alert.attempt][-1].reason != INACTIVE
        finally:
            simulation.close()
            shutil.rmtree(self.folder)


def _is_whole(connection: sa.Connection) -> None:
    assert audit.verify(connection).broken is None


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


MACHINES = [AnyOrder, AnyOrderInOneCall, AnyOrderOfSeveral, SeveralInOneCall]
_MANY = int(os.environ.get("TRAINWARDEN_HISTORIES", "10000")) // len(MACHINES)
_SETTINGS = settings(stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("histories", [10, pytest.param(_MANY, marks=pytest.mark.long)])
@pytest.mark.slow
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], histories: int) -> None:
    case = machine.TestCase
    case.settings = settings(_SETTINGS, max_examples=histories)
    case("runTest").runTest()
