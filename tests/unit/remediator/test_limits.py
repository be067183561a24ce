"""Bounds on top of a policy's budgets: what stops, postpones and moves a restart, each with its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerError
from trainwarden.clients.prometheus import PrometheusError, PrometheusSample
from trainwarden_remediator.database.schema import switches
from trainwarden_remediator.decide.decide import (
    AlertedFailure,
    Circumstances,
    Decision,
    Restart,
    RestartElsewhere,
    StopAndPage,
    decide,
)
from trainwarden_remediator.decide.verdict import Held, Wait
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.incidents.history import History, PastRestart, history_of
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.nodes import EVIDENCE, AlertedNodes, NoNodes, SuspectNodes
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import Policy, load_policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation

NOW = 1_800_000_000.0  # Friday, 2027-01-15 08:00 UTC
STALL = AlertedFailure("stall", "hang")


def policy(**limits: Any) -> Policy:
    rule = Implementation(class_name="AlwaysRestartPolicy", max_retries=50)
    return Policy("p", {"stall": rule, "crash": rule}, limits=Limits.model_validate(limits))


def decided(history: History, around: Circumstances | None = None, **limits: Any) -> Decision:
    return decide(STALL, history, policy(**limits), NOW, around or Circumstances())


def restarts(*ages: float, mode: str = "stall", kind: str | None = "hang", **facts: Any) -> list[PastRestart]:
    return [PastRestart(mode, kind, NOW - age, **facts) for age in sorted(ages, reverse=True)]


def history(past: list[PastRestart], high_water: float | None = None, checkpoint: float | None = None) -> History:
    return history_of(past, "stall", "hang", high_water, checkpoint)


def test_the_total_counts_restarts_of_all_modes_and_n_means_n() -> None:
    past = [*restarts(10, 20), *restarts(30, mode="crash")]
    assert isinstance(decided(history(past), restarts=4), Restart)
    assert decided(history(past), restarts=3) == StopAndPage(
        "restart budget used up: 3 of 3 after failures of all kinds", 3, 3
    )


def test_a_window_forgets_what_is_older() -> None:
    window = {"restarts": 2, "hours": 6}
    assert isinstance(decided(history(restarts(5 * 3600, 7 * 3600)), window=window), Restart)
    spent = decided(history(restarts(5 * 3600, 60, 7 * 3600)), window=window)
    assert spent == StopAndPage("restart budget used up: 2 of 2 within 6 hours", 2, 2)


@pytest.mark.parametrize(
    ("past", "checkpoint", "counted"),
    [
        (restarts(1, 2, checkpoint_step=100.0), 100.0, 2),
        (restarts(1, 2, checkpoint_step=100.0), None, 2),
        (restarts(1, 2), None, 2),
        (restarts(1, 2, checkpoint_step=100.0), 200.0, 0),
        (restarts(1, 2), 100.0, 0),
        (restarts(1, 2, checkpoint_step=100.0, kind="nccl"), 100.0, 0),
        (restarts(1, 2, checkpoint_step=100.0, mode="crash"), 100.0, 0),
    ],
)
def test_the_budget_of_a_cause_comes_back_only_with_a_newer_checkpoint(
    past: list[PastRestart], checkpoint: float | None, counted: int
) -> None:
    # Steps alone do not count: they are lost again with the next restart.
    of_run = history(past, high_water=10_000.0, checkpoint=checkpoint)
    assert of_run.same_cause == counted
    decision = decided(of_run, same_cause=2)
    if counted == 2:
        reason = "2 restarts after a stall by hang, and no newer checkpoint is reported since"
        assert decision == StopAndPage(reason, 2, 2)
    else:
        assert isinstance(decision, Restart)


def test_preemption_and_time_limit_cost_nothing() -> None:
    past = [*restarts(1, 2, 3, kind="preempted"), *restarts(4, kind="time_limit")]
    assert history(past) == History({}, 0, (), 0, {}, 4)
    spent = history(restarts(1, 2))
    limited = decide(AlertedFailure("stall", "time_limit"), spent, policy(restarts=2), NOW)
    assert isinstance(limited, Restart)


def test_a_run_that_is_preempted_before_each_first_step_is_not_restarted_for_ever() -> None:
    """That it was preempted may be what its record says, and nothing else."""
    failure = AlertedFailure("crash", "preempted")
    past = restarts(*range(10), mode="crash", kind="preempted", step=100.0)
    for known, high_water, stops in ((past[1:], 100.0, False), (past, 100.0, True), (past, 101.0, False)):
        decision = decide(failure, history(known, high_water=high_water), policy(), NOW)
        assert isinstance(decision, StopAndPage) == stops
    reason = "10 restarts after preemptions or time limits, and the run has gained no step since"
    assert decide(failure, history(past, high_water=100.0), policy(), NOW) == StopAndPage(reason, 10, 10)


def test_jitter_is_the_same_for_one_attempt_and_differs_between_runs() -> None:
    backoff = Backoff(initial=100, factor=2, max=300, jitter=0.5)
    delays = [backoff.delay(0, f"run-{number}:slurm:1:0") for number in range(200)]
    assert all(50 < delay <= 100 for delay in delays)
    assert len(set(delays)) == 200
    assert delays[0] == backoff.delay(0, "run-0:slurm:1:0")
    assert 150 < backoff.delay(9, "a") <= 300
    assert Backoff(initial=100).delay(0, "a") == 100


@pytest.mark.parametrize(
    ("fleet", "most", "reason"),
    [
        ((), 1, None),
        ((NOW - 60, NOW - 1800), 3, None),
        ((NOW - 60, NOW - 1800), 2, "2 of 2 restarts of all runs within an hour: the next one at 2027-01-15T08:30:00"),
        (
            (NOW - 60, NOW - 1800, NOW - 600),
            2,
            "3 of 2 restarts of all runs within an hour: the next one at 2027-01-15T08:50",
        ),
        ((), 0, "limits.restarts_per_hour of the policy is 0"),
    ],
)
def test_the_fleet_has_a_budget_and_waiting_for_it_may_page(
    fleet: tuple[float, ...], most: int, reason: str | None
) -> None:
    decision = decided(History({}), Circumstances(fleet=fleet), restarts_per_hour=most)
    if reason is None:
        assert isinstance(decision, Restart)
    else:
        assert type(decision) is Wait
        assert decision.reason.startswith(reason)


ONCE = {"from": "2027-01-15T06:00Z", "to": "2027-01-15T09:00Z"}


@pytest.mark.parametrize(
    ("maintenance", "until"),
    [
        ([ONCE], "2027-01-15T09:00"),
        ([{**ONCE, "to": "2027-01-15T08:00Z"}], None),
        ([{"days": ["fri"], "from": "07:00", "to": "08:30"}], "2027-01-15T08:30"),
        ([{"days": ["fri"], "from": "08:30", "to": "09:30"}], None),
        ([{"days": ["thu"], "from": "22:00", "to": "08:15"}], "2027-01-15T08:15"),
        ([{"days": ["fri"], "from": "22:00", "to": "08:15"}], None),
        ([{"days": ["thu", "fri"], "from": "00:00", "to": "00:00"}], "2027-01-16T00:00"),
        ([ONCE, {"days": ["fri"], "from": "07:00", "to": "10:00"}], "2027-01-15T10:00"),
    ],
)
def test_nothing_is_restarted_during_a_maintenance_and_nobody_is_paged_for_it(
    maintenance: list[dict[str, Any]], until: str | None
) -> None:
    decision = decided(History({}), maintenance=maintenance)
    if until is None:
        assert isinstance(decision, Restart)
    else:
        assert isinstance(decision, Held)
        assert decision.reason.startswith(f"maintenance until {until}")


def elsewhere(past: list[PastRestart], *suspects: str, known: int | None = 100, **limit: Any) -> Decision:
    around = Circumstances(suspects=dict.fromkeys(suspects, "TrainGpuLost"), cluster_nodes=known)
    return decided(history(past), around, exclude_nodes=limit)


def test_a_node_is_avoided_only_on_evidence_against_it() -> None:
    assert type(elsewhere([])) is Restart
    decision = elsewhere([], "gpu-7")
    assert isinstance(decision, RestartElsewhere)
    assert decision.exclude_nodes == {"gpu-7": NOW}
    assert decision.reason == "policy p restarts after every stall; away from gpu-7 (TrainGpuLost)"


def test_an_exclusion_lasts_its_hours_and_no_restart_prolongs_it() -> None:
    past = restarts(3600, excluded={"gpu-7": NOW - 3 * 3600})
    decision = elsewhere(past, "gpu-8", hours=4)
    assert isinstance(decision, RestartElsewhere)
    assert decision.exclude_nodes == {"gpu-7": NOW - 3 * 3600, "gpu-8": NOW}
    assert decision.reason.endswith("; away from gpu-8 (TrainGpuLost), still away from gpu-7")
    assert type(elsewhere(past, hours=3)) is Restart


@pytest.mark.parametrize(
    ("suspects", "known", "limit", "bound"),
    [
        (["a", "b", "c"], 100, {}, "at most 2 may be (2 of a run, 10% of 100)"),
        (["a", "b"], 19, {}, "at most 1 may be (2 of a run, 10% of 19)"),
        (["a", "b"], 8, {}, "at most 1 may be (2 of a run, 10% of 8)"),
        (["a"], 1, {}, "at most 0 may be (2 of a run, 10% of 1)"),
        (["a", "b"], None, {}, "at most 1 may be (2 of a run, the size of the cluster is unknown)"),
    ],
)
def test_more_suspects_than_may_be_avoided_page(
    suspects: list[str], known: int | None, limit: dict[str, Any], bound: str
) -> None:
    decision = elsewhere([], *suspects, known=known, **limit)
    assert isinstance(decision, StopAndPage)
    assert f"{len(suspects)} nodes are to be avoided, and {bound}: a (TrainGpuLost)" in decision.reason
    assert isinstance(elsewhere([], *suspects[:1], known=100), RestartElsewhere)


def test_evidence_that_the_policy_does_not_act_upon_is_stated() -> None:
    around = Circumstances(suspects={"gpu-7": "TrainGpuXidFatal XID 79"})
    decision = decided(History({}), around)
    assert type(decision) is Restart
    assert "excludes no nodes, and there is evidence of gpu-7 (TrainGpuXidFatal XID 79)" in decision.reason


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"restart": 3}, "limits.restart: unknown key, expected restarts?"),
    ({"restarts": "3"}, "limits.restarts: '3': expected a valid integer"),
    ({"window": {"restarts": 3}}, "limits.window.hours: missing"),
    (
        {"maintenance": [{"from": "soon", "to": "2027-01-01T00:00Z"}]},
        "'soon': expected a time such as 2027-01-31T22:00Z",
    ),
    ({"maintenance": [{**ONCE, "to": ONCE["from"]}]}, "expected a time after from"),
    ({"maintenance": [{"days": ["fri"], "from": "25:00", "to": "01:00"}]}, "'25:00': expected a time of day in UTC"),
    ({"maintenance": [{"days": ["friday"], "from": "22:00", "to": "01:00"}]}, "'friday': expected 'mon', 'tue'"),
    ({"exclude_nodes": {"share": 1.5}}, "limits.exclude_nodes.share: 1.5: expected less than or equal to 1"),
]


@pytest.mark.parametrize(("limits", "said"), WRONG)
def test_a_wrong_limit_is_named_with_file_key_value_and_what_was_expected(
    tmp_path: Path, limits: dict[str, Any], said: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        yaml.safe_dump(
            {"policies": [{"mode": "crash", "implementation": {"class_name": "NoRestartPolicy"}}], "limits": limits}
        )
    )
    with pytest.raises(ConfigError) as error:
        load_policy(str(path))
    assert str(error.value).startswith(f"{path}: line ")
    assert said in str(error.value)


def test_times_need_no_quotes_and_a_composed_file_keeps_the_limits_that_it_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "defaults: [megatron_aggressive]\n"
        "limits:\n"
        "  restarts_per_hour: 7\n"
        "  maintenance:\n"
        "  - {from: 2027-01-15T06:00:00Z, to: 2027-01-15 09:00:00}\n"
        "  - {days: [sun], from: 22:00, to: 06:00}\n"
    )
    limits = load_policy(str(tmp_path / "p.yaml")).limits
    assert (limits.restarts_per_hour, limits.same_cause) == (7, load_policy("megatron_aggressive").limits.same_cause)
    assert limits.maintained_until(NOW) == NOW + 3600
    assert limits.maintained_until(NOW + 2 * 86400 + 15 * 3600) == NOW + 2 * 86400 + 22 * 3600


class Nodes(NoNodes):
    """A NodeSource with one answer."""

    def __init__(self, answer: SuspectNodes | Unknown) -> None:
        self.answer = answer

    def of_run(self, _run_id: str) -> SuspectNodes | Unknown:
        return self.answer


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Simulation]:
    simulation = Simulation(tmp_path, two_phase=True)
    yield simulation
    simulation.close()


def freeze(sim: Simulation, until: float | None = None) -> None:
    values = {"name": "freeze", "scope": "", "value": "", "by": "ann", "reason": "fabric work", "at": sim.clock.now()}
    with sim.engine.begin() as connection:
        connection.execute(switches.insert().values(**values, until=until))


def test_nothing_is_restarted_while_frozen_and_nobody_is_paged_and_then_it_goes_on(sim: Simulation) -> None:
    freeze(sim, until=sim.clock.now() + 3000)
    sim.tick(5)
    sim.clock.elapsed += 2900
    sim.tick(5)
    [pending] = sim.store.pending()
    assert "frozen by ann since" in (pending.waits_for or "")
    assert (sim.our_starts, sim.store.escalations()) == ([], [])
    frozen, incident = sim.settle()
    assert (frozen.state, "frozen by ann" in frozen.reason) == (State.SUPPRESSED, True)
    assert (incident.state, len(sim.our_starts)) == (State.DONE, 1)


def test_a_freeze_between_decision_and_call_holds_the_call_back(tmp_path: Path) -> None:
    backoff = Backoff(initial=60)
    rule = Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=backoff)
    sim = Simulation(tmp_path, two_phase=True, policy=Policy("p", {"stall": rule}))
    sim.tick(5)
    assert [each.state for each in sim.store.of_run(RUN)] == [State.PROPOSED]
    freeze(sim)
    sim.tick(200, every=5)
    [incident] = sim.store.of_run(RUN)
    assert (incident.state, sim.our_starts) == (State.SUPPRESSED, [])
    assert "frozen by ann" in incident.reason
    sim.close()


def test_the_scheduler_is_given_the_nodes_to_avoid(tmp_path: Path) -> None:
    avoiding = replace(load_policy("default"), limits=Limits.model_validate({"exclude_nodes": {}}))
    sim = Simulation(tmp_path, two_phase=True, policy=avoiding)
    sim.nodes = Nodes(SuspectNodes({"gpu-7": "TrainGpuLost"}, 100))
    sim.restart()
    [incident] = sim.settle()
    assert incident.state is State.DONE
    assert sim.driver.excluded == ("gpu-7",)
    assert set(incident.excluded) == {"gpu-7"}
    assert set(sim.store.past_restarts(RUN)[0].excluded) == {"gpu-7"}
    sim.close()


def test_what_is_unknown_about_nodes_is_waited_for(sim: Simulation) -> None:
    sim.nodes = Nodes(Unknown("Alertmanager is down"))
    sim.restart()
    sim.tick(20)
    [pending] = sim.store.pending()
    assert (pending.waits_for, sim.our_starts) == ("Alertmanager is down", [])


class Alertmanager:
    """As much of a client as is asked."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self._labels = labels

    def alerts(self, *_matchers: str) -> list[AlertmanagerAlert]:
        return [AlertmanagerAlert({"run_id": RUN, **each}, "", "active", is_suppressed=False) for each in self._labels]


class Away:
    """An Alertmanager that does not answer."""

    def alerts(self, *_matchers: str) -> list[AlertmanagerAlert]:
        raise AlertmanagerError("away")


class Prometheus:
    """As much of a client as is asked; without a count it is down."""

    def __init__(self, nodes: float | None) -> None:
        self._nodes = nodes

    def query(self, _query: str) -> list[PrometheusSample]:
        if self._nodes is None:
            raise PrometheusError("down")
        return [PrometheusSample({"cluster": "a"}, self._nodes), PrometheusSample({"cluster": "b"}, 7.0)]


@pytest.mark.parametrize(
    ("labels", "suspects"),
    [
        ({"alertname": "TrainGpuXidFatal", "node": "gpu-7", "xid": "79"}, {"gpu-7": "TrainGpuXidFatal XID 79"}),
        ({"alertname": "TrainGpuLost", "node": "gpu-7", "cluster": "b"}, {}),
        ({"alertname": "TrainRunStalled", "node": "gpu-7"}, {}),
        ({"alertname": "TrainGpuLost", "node": "gpu-[1-9]"}, {}),
        ({"alertname": "TrainGpuLost", "node": "-1"}, {}),
        ({"alertname": "TrainGpuLost", "node": "gpu-7", "run_id": "another"}, {}),
    ],
)
def test_only_alerts_about_the_hardware_of_a_node_of_the_run_are_evidence(
    labels: dict[str, str], suspects: dict[str, str]
) -> None:
    alertmanagers = [Away(), Alertmanager(labels), Alertmanager(labels)]
    source = AlertedNodes(alertmanagers, Prometheus(40.0), "a")  # type: ignore[arg-type]  # as much as is asked
    assert source.of_run(RUN) == (SuspectNodes(suspects, 40) if suspects else SuspectNodes())


@pytest.mark.parametrize(("labels", "known"), [({"cluster": "b"}, 7), ({}, None)])
def test_the_size_is_that_of_the_cluster_of_the_evidence(labels: dict[str, str], known: int | None) -> None:
    alert = {"alertname": "TrainGpuLost", "node": "gpu-7", **labels}
    source = AlertedNodes([Alertmanager(alert)], Prometheus(40.0))  # type: ignore[arg-type,list-item]  # as much as is asked
    assert source.of_run(RUN) == SuspectNodes({"gpu-7": "TrainGpuLost"}, known)


def test_every_alert_that_is_evidence_exists() -> None:
    rules = "".join(path.read_text() for path in (Path(__file__).parents[3] / "rules" / "alerts").glob("*.yml"))
    assert [name for name in EVIDENCE if f"alert: {name}\n" not in rules] == []


def test_evidence_without_the_size_of_the_cluster_waits() -> None:
    alert = {"alertname": "TrainGpuLost", "node": "gpu-7"}
    source = AlertedNodes([Alertmanager(alert)], Prometheus(None))  # type: ignore[arg-type,list-item]  # as much as is asked
    assert source.of_run(RUN) == Unknown("down")
    none = AlertedNodes([Away()], Prometheus(40.0))  # type: ignore[arg-type,list-item]  # as much as is asked
    assert none.of_run(RUN) == Unknown("away")


def test_a_restart_whose_alert_has_waited_for_hours_counts_from_its_decision_on(sim: Simulation) -> None:
    freeze(sim, until=sim.clock.now() + 7000)
    sim.tick(5)
    sim.clock.elapsed += 7000
    sim.driver.faults = ["dropped"]
    sim.tick(5)
    [incident] = sim.store.open_incidents()
    assert incident.created < sim.clock.now() - 3600
    assert len(sim.store.restarts_since(sim.clock.now() - 3600)) == 1
    assert sim.store.past_restarts(RUN)[0].at > sim.clock.now() - 3600
