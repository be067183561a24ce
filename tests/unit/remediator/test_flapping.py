"""Alerts of one attempt that come and go: each decision is made once, none is put off for ever, and a person hears."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.incidents.incident import Alert, State
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation

Build = Callable[..., "Alternating"]
DELAY = 60
FAR = {"alertname": "TrainRunFailed", "error_type": "unknown"}
NEAR = {"alertname": "TrainNodeHardwareError", "failure_mode": "crash", "error_type": "gpu_hardware", "node": "n1"}
MEMORY = {"alertname": "TrainRunFailed", "error_type": "oom"}


class Alternating(Simulation):
    """A run of which these alerts fire, instead of those that its state would make."""

    instead: tuple[dict[str, str], ...] = ()

    def alerts_now(self) -> list[Alert]:
        found = super().alerts_now()
        return [Alert({**found[0].labels, **each}, found[0].starts_at) for each in self.instead] if found else []


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[Alternating] = []

    def make(rule: Implementation) -> Alternating:
        policy = Policy("patient", dict.fromkeys(("crash", "stall", "timeout"), rule))
        made.append(Alternating(tmp_path / "state", two_phase=True, policy=policy))
        return made[-1]

    yield make
    for each in made:
        each.close()


def patient(retries: int = 3) -> Implementation:
    backoff = Backoff(initial=DELAY)
    return Implementation(class_name="AlwaysRestartPolicy", max_retries=retries, restart_delay_seconds=backoff)


def test_a_restart_that_is_decided_anew_counts_once_in_its_budget(build: Build) -> None:
    simulation = build(patient(1))
    simulation.cluster.crash()
    simulation.instead = (FAR,)
    simulation.tick(3)
    simulation.instead = (FAR, NEAR)
    simulation.settle()
    assert simulation.our_starts == [0]
    assert [each.alert for each in simulation.store.of_run(RUN) if each.committed] == ["TrainNodeHardwareError"]
    assert [each for each in simulation.store.of_run(RUN) if each.state is State.ESCALATED] == []


def test_a_failure_that_its_policy_never_restarts_is_not_restarted_for_an_alert_further_from_the_cause(
    build: Build,
) -> None:
    rule = Implementation(class_name="SelectiveRestartPolicy", default_action="restart", exclude_error_types=["oom"])
    simulation = build(rule)
    simulation.cluster.crash()
    simulation.captures.seconds = 10
    simulation.instead = (FAR, MEMORY)
    simulation.tick(60, every=5)
    assert simulation.driver.calls == []
    assert [each.error_type for each in simulation.store.of_run(RUN)] == ["oom"]


def test_so_also_where_the_cause_is_found_after_a_restart_was_decided(build: Build) -> None:
    rule = Implementation(class_name="SelectiveRestartPolicy", default_action="restart", exclude_error_types=["oom"])
    simulation = build(rule)
    simulation.captures.seconds = 10
    simulation.cluster.run_state = "failed"
    simulation.instead = (FAR,)
    simulation.tick(62)
    assert [each.state for each in simulation.store.open_incidents()] == [State.CAPTURING]
    simulation.instead = (FAR, MEMORY)
    simulation.tick(300, every=5)
    assert simulation.driver.calls == []


def test_an_alert_that_comes_and_goes_puts_a_restart_off_no_further(build: Build) -> None:
    simulation = build(patient())
    simulation.cluster.crash()
    for _ in range(10):
        simulation.instead = (FAR,)
        simulation.tick(DELAY - 5)
        simulation.instead = (FAR, NEAR)
        simulation.tick(5)
    assert simulation.our_starts == [0]


def test_decisions_that_are_withdrawn_again_and_again_page_once(build: Build) -> None:
    simulation = build(patient())
    simulation.captures.seconds = 30
    stalled = {"alertname": "TrainRunStalled", "failure_mode": "stall", "error_type": "unknown"}
    for _ in range(10):
        for firing in ((stalled,), ({**stalled, "alertname": "TrainRunHung", "error_type": "hang"},), ()):
            simulation.instead = firing
            simulation.tick(20)
    assert simulation.our_starts == []
    [page] = simulation.store.escalations()
    assert page.reason.startswith("a restart of this attempt was decided and withdrawn 5 times")


def test_of_a_thousand_alerts_of_one_attempt_the_log_has_the_first(build: Build) -> None:
    simulation = build(patient())
    simulation.cluster.crash()
    simulation.instead = (FAR, *({"alertname": "TrainRankSilent", "rank": str(rank)} for rank in range(200)))
    simulation.tick(2)
    [(incident, events)] = simulation.store.with_events()
    assert incident.state is State.PROPOSED
    assert len(events) < 100
    assert simulation.store.pending() == []
