"""One piece of evidence ends no run that works: an error in its record is one, and a step after it is another."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden.identity import AttemptKey
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, State
from trainwarden_remediator.observe.cpu_time import CpuUse
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation


def goes_on(simulation: Simulation, seconds: int) -> None:
    for _ in range(seconds):
        simulation.cluster.step += 1
        simulation.cluster.high_water += 1
        simulation.tick()


def test_a_run_that_writes_an_error_and_goes_on_is_not_ended_and_pages_with_both_facts(
    simulation: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    simulation.cluster.run_state = "failed"
    goes_on(simulation, 100)
    assert simulation.store.of_run("run-1") == [], "a script may clear its error soon"
    goes_on(simulation, 600)
    assert simulation.driver.calls == []
    [incident] = simulation.store.escalations()
    assert incident.state is State.ESCALATED
    assert "recorded as failed, and goes on: step" in incident.reason
    assert "_error" in incident.reason
    waits = [each.getMessage() for each in caplog.records if " waits: " in each.getMessage()]
    assert len(waits) == len(set(waits)) <= 3, "not at each step"


def test_what_is_waited_for_is_written_down_once_however_long_it_is(
    simulation: Simulation, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(simulation, "run", lambda _run_id: Unknown("no answer " * 30))
    simulation.tick(20)
    assert len([each for each in caplog.records if " waits: " in each.getMessage()]) == 1


def test_long_steps_after_the_error_page_as_soon(simulation: Simulation) -> None:
    """Between two steps of 90 s the run is quiet for longer than the minute after which a failure counts."""
    simulation.cluster.run_state = "failed"
    simulation.stall_budget = 600.0
    for second in range(300):
        simulation.alive = second
        simulation.cluster.step += second % 90 == 0
        simulation.cluster.high_water = simulation.cluster.step
        simulation.tick()
    assert simulation.driver.calls == []
    assert "and goes on: step" in simulation.store.escalations()[0].reason


def test_such_a_page_ends_once_the_record_says_running_again(simulation: Simulation) -> None:
    simulation.cluster.run_state = "failed"
    goes_on(simulation, 200)
    assert len(simulation.store.escalations()) == 1
    simulation.cluster.run_state = "running"
    simulation.alerts_now = list  # type: ignore[method-assign]
    goes_on(simulation, 2)
    assert simulation.store.escalations() == []
    assert simulation.driver.calls == []


def test_a_run_that_stops_after_its_error_is_restarted(simulation: Simulation) -> None:
    simulation.cluster.run_state = "failed"
    goes_on(simulation, 90)
    simulation.settle()
    assert simulation.our_starts == [0]
    assert simulation.store.escalations() == []


def test_the_end_of_the_job_is_a_second_witness(simulation: Simulation) -> None:
    simulation.cluster.run_state = "failed"
    goes_on(simulation, 200)
    simulation.cluster.state = JobState.FAILED
    simulation.tick(2)
    assert len(simulation.driver.calls) == 1


def test_heartbeats_without_a_step_hold_back_a_restart_for_as_long_as_a_step_may_take(simulation: Simulation) -> None:
    """They may be those of a thread of a rank that hangs."""
    simulation.cluster.run_state = "failed"
    simulation.stall_budget = 300.0
    for second in range(290):
        simulation.alive = second
        simulation.tick()
    assert simulation.driver.calls == []
    for second in range(20):
        simulation.alive = 290 + second
        simulation.tick()
    assert simulation.driver.calls[:1] == ["prepare: none"]


def test_what_was_seen_of_a_run_outlives_the_remediator(simulation: Simulation) -> None:
    simulation.cluster.run_state = "failed"
    for _ in range(20):
        goes_on(simulation, 10)
        simulation.restart()
    assert simulation.driver.calls == []
    assert len(simulation.store.escalations()) == 1


def test_a_step_during_the_delay_of_the_policy_calls_the_restart_off(tmp_path: Path) -> None:
    rule = Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=Backoff(initial=100))
    simulation = Simulation(tmp_path / "delayed", two_phase=True, policy=Policy("patient", {"crash": rule}))
    simulation.cluster.run_state = "failed"
    simulation.tick(70, every=5)
    assert [each.state for each in simulation.store.open_incidents()] == [State.PROPOSED]
    goes_on(simulation, 300)
    assert simulation.driver.calls == []
    assert simulation.store.open_incidents() == []
    assert "goes on" in simulation.store.escalations()[0].reason
    simulation.close()


class Stated(Simulation):
    """A run whose log states a failure by a signal of its user, while its record says that it runs."""

    mode = "crash"
    cpu_use = CpuUse(0.9, 60.0, 1)
    seen: float | None = None
    stepped: float | None = None

    def run(self, run_id: str) -> Evidence:
        found = super().run(run_id)
        assert isinstance(found, ReportedRun)
        return replace(
            found, stated={} if self.seen is None else {self.mode: self.seen}, stepped=self.stepped, plain=True
        )

    def of(self, _key: AttemptKey) -> CpuUse:
        return self.cpu_use

    def alerts_now(self) -> list[Alert]:
        labels = {"run_id": self.cluster.run_id, "failure_mode": self.mode, "remediate": "true", "signal": "lost"}
        now = {"alertname": "TrainRunSignalled", "attempt": str(self.cluster.attempt), "error_type": "license"}
        return [] if self.seen is None or self.cluster.attempt else [Alert({**labels, **now}, None)]


@pytest.fixture(params=["crash", "stall", "timeout"])
def stated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stated]:
    rule = Implementation(class_name="AlwaysRestartPolicy")
    made = Stated(tmp_path / "state", two_phase=True, policy=Policy("each", {request.param: rule}))
    made.mode = request.param
    made.seen = made.clock.now()
    yield made
    made.close()


def test_what_a_users_signal_states_leads_to_its_mode_after_a_quiet_minute(stated: Stated) -> None:
    stated.tick(50, every=5)
    assert stated.store.of_run(RUN) == []
    stated.tick(30, every=5)
    assert stated.driver.calls[:1] == ["prepare: none"]
    [incident] = stated.store.of_run(RUN)
    assert (incident.failure_mode, incident.error_type) == (stated.mode, "license")


def test_heartbeats_of_a_job_without_the_library_hold_nothing_up_once_its_processes_take_no_cpu_time(
    stated: Stated,
) -> None:
    """They are those of the watch, by what the scheduler says."""
    stated.cpu = stated
    stated.restart()
    stated.stall_budget = 600.0
    for second in range(130):
        stated.alive = second
        stated.tick()
    assert stated.driver.calls == []
    stated.cpu_use = CpuUse(0.0, 60.0, 1)
    stated.alive = 131
    stated.tick()
    assert stated.driver.calls[:1] == ["prepare: none"]


def test_a_run_whose_steps_go_on_is_not_ended_whatever_its_log_states(stated: Stated) -> None:
    for _ in range(200):
        stated.cluster.step += 1
        stated.cluster.high_water += 1
        stated.stepped = stated.clock.now()
        stated.tick()
    assert stated.driver.calls == []
    [incident] = stated.store.of_run(RUN)
    assert incident.state is State.ESCALATED
    assert "by signal lost of its log, and goes on: step" in incident.reason
    assert "mend the signal" in incident.reason


def test_a_statement_that_is_taken_back_ends_nothing(stated: Stated) -> None:
    stated.tick(50, every=5)
    stated.seen = None
    stated.tick(200, every=5)
    assert stated.driver.calls == []
