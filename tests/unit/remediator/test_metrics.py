"""The remediator's page shows whether alerts arrive, whether it can judge, and what it has in hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden.server.messages import Request
from trainwarden_remediator.drivers.driver import Shape
from trainwarden_remediator.incidents.incident import Action, Alert, State
from trainwarden_remediator.incidents.price import APPROVED
from trainwarden_remediator.metrics import RemediatorCollector
from trainwarden_remediator.observe.readings import CountedDriver, CountedRuns
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Implementation
from trainwarden_remediator.store.answers import answer_approval
from trainwarden_remediator.store.switches import freeze, unfreeze
from trainwarden_remediator.web.credentials import Credentials
from trainwarden_remediator.web.server import WEBHOOK, RemediatorPages

P = "trainwarden_remediator"
OF_ATTEMPT = {"run_id": RUN, "job_id": "17", "attempt": "0", "failure_mode": "stall"}


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Simulation]:
    simulation = Simulation(tmp_path, two_phase=True)
    yield simulation
    simulation.close()


def page(sim: Simulation) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RemediatorCollector(sim.metrics, sim.store, now=sim.clock.now))
    return registry


def value(sim: Simulation, name: str, **labels: str) -> float | None:
    return page(sim).get_sample_value(f"{P}_{name}", labels)


def series(sim: Simulation, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in page(sim).collect()
        for sample in family.samples
        if sample.name == f"{P}_{name}"
    }


def deliver(sim: Simulation, *labels: Mapping[str, str], status: str = "firing", cluster: str = "") -> None:
    alerts = [{"status": status, "labels": dict(each), "startsAt": "2027-01-02T03:04:05Z"} for each in labels]
    body = json.dumps({"version": "4", "alerts": alerts}).encode()
    pages = RemediatorPages(
        sim.store,
        sim.metrics,
        CollectorRegistry(),
        sim.clock,
        Credentials(lambda: ["t"]),
        lambda: None,
        lambda: True,
        cluster,
    )
    request = Request("POST", WEBHOOK, {"authorization": "Bearer t"}, lambda _limit: body)
    assert pages.respond(request).status == 200


WATCHDOG = {"alertname": "TrainWatchdog", "severity": "none", "remediate": "false"}
FAILED = {"alertname": "TrainRunFailed", "run_id": RUN, "attempt": "0", "failure_mode": "crash", "remediate": "true"}


def test_the_watchdog_is_received_and_is_no_incident(sim: Simulation) -> None:
    assert value(sim, "watchdog_last_received_timestamp_seconds") is None
    deliver(sim, WATCHDOG)
    assert value(sim, "watchdog_last_received_timestamp_seconds") == sim.clock.now()
    assert sim.store.pending() == []
    sim.tick()
    assert value(sim, "incidents", state="SUPPRESSED") == 0


@pytest.mark.parametrize(
    ("labels", "status"),
    [(FAILED, "firing"), (WATCHDOG, "resolved"), ({**WATCHDOG, "cluster": "other"}, "firing")],
)
def test_nothing_else_is_taken_for_the_watchdog(sim: Simulation, labels: dict[str, str], status: str) -> None:
    deliver(sim, labels, status=status, cluster="ours")
    assert value(sim, "watchdog_last_received_timestamp_seconds") is None


def test_alerts_of_another_cluster_are_counted_and_ignored(sim: Simulation) -> None:
    deliver(sim, {**FAILED, "cluster": "other"}, {**FAILED, "cluster": "ours"}, FAILED, cluster="ours")
    assert [each.alert.labels.get("cluster") for each in sim.store.pending()] == ["ours"], (
        "one without the label is the same"
    )
    assert value(sim, "foreign_alerts_total") == 1


def test_alerts_of_every_cluster_are_taken_where_none_is_configured(sim: Simulation) -> None:
    deliver(sim, {**FAILED, "cluster": "a"}, {**FAILED, "cluster": "b"})
    assert len(sim.store.pending()) == 2
    assert value(sim, "foreign_alerts_total") == 0


def test_what_has_not_happened_yet_is_counted_as_none(sim: Simulation) -> None:
    """A counter that begins with its first event hides that one from `increase`."""
    assert value(sim, "decisions_total", action="restart", failure_mode="stall") == 0
    assert value(sim, "webhook_requests_total", code="401") == 0
    sim.tick()
    assert value(sim, "decisions_total", action="restart", failure_mode="stall") == 1


def test_polls_of_alertmanager_are_counted_by_their_outcome(sim: Simulation) -> None:
    assert value(sim, "readings_total", source="alertmanager", outcome="unknown") == 0
    sim.alertmanager_down = True
    sim.tick(2)
    sim.alertmanager_down, sim.silenced = False, True
    sim.tick()
    assert value(sim, "readings_total", source="alertmanager", outcome="unknown") == 2
    assert value(sim, "readings_total", source="alertmanager", outcome="known") == 1


def test_readings_of_prometheus_and_of_the_scheduler_are_counted_by_their_outcome(sim: Simulation) -> None:
    runs, driver = CountedRuns(sim, sim.metrics.read), CountedDriver(sim.driver, sim.metrics.read)
    sim.prometheus_down, sim.driver.down = True, True
    assert (runs.runs([RUN])[RUN], driver.job("17")) == (sim.run(RUN), sim.driver.job("17"))
    sim.prometheus_down, sim.driver.down = False, False
    assert (runs.runs([RUN])[RUN], driver.job("17")) == (sim.run(RUN), sim.driver.job("17"))
    counted = {
        key: found for key, found in series(sim, "readings_total").items() if ("source", "alertmanager") not in key
    }
    assert counted == {
        (("outcome", outcome), ("source", source)): 1
        for outcome in ("known", "unknown")
        for source in ("prometheus", "sim")
    }
    assert (driver.name, driver.shape) == ("sim", Shape.REQUEUE)


def test_an_alert_that_awaits_a_decision_is_shown_with_its_age(sim: Simulation) -> None:
    begun = sim.clock.now()
    deliver(sim, *[alert.labels for alert in sim.alerts_now()])
    sim.prometheus_down = True
    sim.tick(30)
    assert series(sim, "alert_pending_timestamp_seconds") == {(("alert", "TrainRunStalled"), ("run_id", RUN)): begun}
    sim.prometheus_down = False
    sim.tick()
    assert series(sim, "alert_pending_timestamp_seconds") == {}


def test_an_open_incident_is_shown_with_its_state_and_age_until_it_is_over(sim: Simulation) -> None:
    sim.tick()
    sim.driver.down = True
    sim.tick(5)
    shown = series(sim, "incident_timestamp_seconds")
    ((key, _),) = shown.items()
    assert dict(key) == {**OF_ATTEMPT, "state": sim.store.open_incidents()[0].state.value}
    assert next(iter(shown.values())) == sim.store.open_incidents()[0].created
    sim.driver.down = False
    sim.settle()
    assert series(sim, "incident_timestamp_seconds") == {}


@pytest.mark.parametrize("why", ["frozen", "observed", "contradicted"])
def test_an_alert_that_waits_with_a_persons_knowledge_has_no_age(sim: Simulation, why: str) -> None:
    """TrainRemediationStuck pages for one that nobody knows of."""
    if why == "frozen":
        sim.switch(lambda connection, now: freeze(connection, "", "alice", "maintenance", now, None))
    else:
        sim.at_work.add(RUN)
        mode = "observe" if why == "observed" else "act"
        sim.policies.take(replace(sim.policies, mode=mode))
    sim.tick(1200, every=5)
    assert sim.driver.calls == []
    assert list(series(sim, "alert_pending_timestamp_seconds").values()) == [sim.clock.now()]
    assert bool(sim.store.escalations()) == (why == "contradicted")
    sim.switch(lambda connection, _: unfreeze(connection, ""))
    sim.at_work.clear()
    sim.prometheus_down = True
    sim.policies.take(replace(sim.policies, mode="act"))
    sim.tick(5)
    [received] = series(sim, "alert_pending_timestamp_seconds").values()
    assert (received < sim.clock.now() - 1000) == (why != "contradicted"), "nobody knows that Prometheus is down"


@pytest.mark.parametrize("why", ["storm", "approval"])
def test_a_restart_that_waits_for_a_person_has_no_age(tmp_path: Path, why: str) -> None:
    rule = Implementation(class_name="AlwaysRestartPolicy")
    limits = Limits(approval_above_gpu_hours=0 if why == "approval" else None)
    sim = Simulation(tmp_path, runs=6 if why == "storm" else 1, policy=Policy("p", {"stall": rule}, limits=limits))
    sim.tick(1200, every=30)
    found, waiting = series(sim, "incident_timestamp_seconds"), sim.store.open_incidents()
    assert {dict(key)["state"] for key in found} == {"PROPOSED"}
    assert set(found.values()) == {sim.clock.now()}
    sim.resume()
    sim.switch(lambda connection, _: [answer_approval(connection, each.id, APPROVED, "alice", 0.0) for each in waiting])
    sim.driver.down = True
    sim.tick(10)
    found = series(sim, "incident_timestamp_seconds")
    assert min(found.values()) >= sim.clock.now() - 10, "its work has just begun"
    sim.close()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Simulation]:
    """With a policy that waits five minutes before a restart."""
    rule: dict[str, Any] = {
        "class_name": "AlwaysRestartPolicy",
        "max_retries": 3,
        "restart_delay_seconds": {"initial": 300},
    }
    policy = Policy("patient", {"stall": Implementation.model_validate(rule)})
    simulation = Simulation(tmp_path / "patient", two_phase=True, policy=policy)
    yield simulation
    simulation.close()


def test_the_delay_of_a_policy_is_no_age(patient: Simulation) -> None:
    deliver(patient, *[alert.labels for alert in patient.alerts_now()])
    patient.tick()
    (incident,) = patient.store.open_incidents()
    assert incident.state is State.PROPOSED
    assert incident.not_before > incident.created
    assert list(series(patient, "incident_timestamp_seconds").values()) == [incident.not_before]


def test_a_failure_that_the_policy_does_not_restart_is_shown_with_the_reason(tmp_path: Path) -> None:
    rule = {"class_name": "SelectiveRestartPolicy", "max_retries": 3, "default_action": "stop"}
    policy = Policy("picky", {"crash": Implementation.model_validate(rule)})
    sim = Simulation(tmp_path, two_phase=True, policy=policy)
    sim.cluster.crash()
    deliver(sim, *[alert.labels for alert in sim.alerts_now()])
    sim.tick(70, every=5)
    (incident,) = sim.store.of_run(RUN)
    assert (incident.state, incident.action) == (State.SUPPRESSED, Action.NONE)
    assert "does not restart by default" in incident.reason
    assert [dict(key)["reason"] for key in series(sim, "refusal_info")] == [incident.reason]
    sim.clock.elapsed += 24 * 3600 + 1
    assert series(sim, "refusal_info") == {}
    sim.close()


def test_a_policy_that_never_restarts_refuses_nothing(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, two_phase=True, policy="observe")
    deliver(sim, *[alert.labels for alert in sim.alerts_now()])
    sim.tick(3)
    assert sim.store.of_run(RUN)[0].state is State.SUPPRESSED
    assert series(sim, "refusal_info") == {}
    sim.close()


def test_a_restart_that_became_unnecessary_is_no_refusal(patient: Simulation) -> None:
    deliver(patient, *[alert.labels for alert in patient.alerts_now()])
    patient.tick()
    patient.silenced = True
    patient.tick(301)
    (incident,) = patient.store.of_run(RUN)
    assert (incident.state, incident.budget_limit) == (State.SUPPRESSED, 3)
    assert series(patient, "refusal_info") == {}


def test_the_cluster_label_decides_whose_alert_it_is() -> None:
    def is_ours(cluster: str | None) -> bool:
        return Alert({} if cluster is None else {"cluster": cluster}, None).is_of_cluster("ours")

    assert [is_ours(cluster) for cluster in (None, "", "ours", "theirs")] == [True, True, True, False]


def test_how_long_a_recovery_took_and_what_is_left_outlast_the_process(sim: Simulation) -> None:
    sim.tick(60, every=5)
    sim.restart()
    [incident] = sim.store.of_run(RUN)
    assert value(sim, "recovery_seconds_count") == 1
    assert value(sim, "recovery_seconds_sum") == incident.updated - incident.created > 0
    assert value(sim, "recovery_seconds_bucket", le="60") == 1
    assert value(sim, "budget_left", run_id=RUN, failure_mode="stall") == 2
