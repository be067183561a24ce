"""Anything may happen in any order; what the log of starts must never show is checked after every step."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incident import Action, Alert
from trainwarden_remediator.objections import INACTIVE
from trainwarden_remediator.receive import Delivery

FAULTS = ["lost reply", "late", "twice", "dropped", "said yes, did nothing", "refused"]
LIMITS = {"stall": 3, "crash": 2}


class AnyOrder(RuleBasedStateMachine):
    """One run under the shipped default policy, with everything that may go wrong."""

    two_phase = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.simulation = Simulation(self.folder, two_phase=self.two_phase)
        self.seen: list[Alert] = []

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.simulation.tick(seconds)

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

    @rule(what=st.sampled_from(["crash", "requeue", "cancel", "complete", "hold", "recovers", "does not recover"]))
    def the_job_changes(self, what: str) -> None:
        cluster = self.simulation.cluster
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

    @rule(data=st.data(), copies=st.integers(1, 3))
    def webhooks_arrive_late_twice_and_out_of_order(self, data: st.DataObject, copies: int) -> None:
        self.seen += [alert for alert in self.simulation.alerts_now() if alert not in self.seen]
        if self.seen:
            picked = data.draw(st.lists(st.sampled_from(self.seen), min_size=1, max_size=4))
            saved, self.simulation.crash_at = self.simulation.crash_at, None
            for number in range(copies):
                self.simulation.store.receive(Delivery(str(number), tuple(picked), 0))
            self.simulation.crash_at = saved

    @invariant()
    def nothing_forbidden_happened(self) -> None:
        simulation = self.simulation
        assert simulation.cluster.violations == []  # S2, S3, S4, S5
        ours = simulation.our_starts
        assert len(ours) == len(set(ours))  # S1
        restarts = [each for each in simulation.store.of_run("run-1") if each.action is Action.RESTART]
        assert len({each.attempt_key for each in restarts}) == len(restarts)
        used = Counter(each.mode for each in simulation.store.past_restarts("run-1"))
        assert all(used.get(mode, 0) <= limit for mode, limit in LIMITS.items())
        assert len(ours) <= sum(LIMITS.values())  # S6

    def teardown(self) -> None:
        """L1: once the faults stop, every alert gets its answer and every intent its end."""
        simulation = self.simulation
        simulation.crash_at = None
        simulation.driver.faults = []
        simulation.driver.down = simulation.prometheus_down = simulation.alertmanager_down = False
        simulation.silenced = False
        try:
            for _ in range(3):
                simulation.settle()
            self.nothing_forbidden_happened()
            assert simulation.store.pending() == []
            assert simulation.store.open_incidents() == []
            held = simulation.cluster.state is JobState.HELD and simulation.cluster.held_by_requeue
            assert not held or simulation.store.escalations() != [], "left held by a call of ours, and nobody is paged"
            for alert in simulation.alerts_now():  # an answer that says "not active" would be a lost alert
                about = [each for each in simulation.store.of_run("run-1") if each.attempt == alert.attempt]
                assert about[-1].reason != INACTIVE
        finally:
            simulation.close()
            shutil.rmtree(self.folder)


class AnyOrderInOneCall(AnyOrder):
    """The same for a scheduler such as the local launcher."""

    two_phase = False


_SETTINGS = settings(stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("machine", [AnyOrder, AnyOrderInOneCall], ids=["two-phase", "one-call"])
@pytest.mark.parametrize("histories", [10, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.slow
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], histories: int) -> None:
    case = machine.TestCase
    case.settings = settings(_SETTINGS, max_examples=histories)
    case("runTest").runTest()
