"""Runs that fail together have one cause: nothing is restarted, one page says what they share, and a person resumes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.unit.remediator.simulation import Make, Simulation
from trainwarden_remediator.act.storm import Candidate, judge
from trainwarden_remediator.cli import main
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import STORM, Alert, Incident, State
from trainwarden_remediator.incidents.incident_rows import acknowledge
from trainwarden_remediator.observe.nodes import NoNodes


def candidate(run_id: str, *causes: tuple[str, str]) -> Candidate:
    return Candidate(run_id, frozenset({("alert", "TrainRunStalled")}), frozenset(causes))


def test_few_runs_that_share_nothing_are_no_storm() -> None:
    assert judge([], 5) is None
    assert judge([candidate(f"r{number}", ("node", f"n{number}")) for number in range(5)], 5) is None


def test_one_run_more_than_the_limit_is_a_storm_and_attempts_of_one_run_are_none() -> None:
    reason = judge([candidate(f"r{number}") for number in range(6)], 5)
    assert reason is not None
    assert reason.startswith("6 runs are to be restarted")
    assert "they share alert TrainRunStalled (6 runs); r0, r1, r2, r3, r4, r5" in reason
    assert judge([candidate("r", ("node", "n"))] * 9, 5) is None


@pytest.mark.parametrize("kind", ["node", "rack", "switch", "file system", "fabric"])
def test_two_runs_with_a_common_cause_are_a_storm(kind: str) -> None:
    reason = judge([candidate("a", (kind, "x")), candidate("b", (kind, "x"), ("node", "n")), candidate("c")], 5)
    assert reason is not None
    assert f"they share {kind} x (2 runs)" in reason


def test_the_text_of_a_large_storm_is_bounded() -> None:
    reason = judge([candidate(f"run-{number:03}") for number in range(500)], 5)
    assert reason is not None
    assert reason.endswith("run-019 and 480 more")


def pages(simulation: Simulation) -> list[Incident]:
    return [each for each in simulation.store.escalations() if each.alert == STORM]


@pytest.mark.parametrize("two_phase", [True, False])
def test_many_runs_at_once_are_not_restarted_but_paged_once(make: Make, two_phase: bool) -> None:
    simulation = make(runs=6, two_phase=two_phase)
    simulation.tick(60, every=5)
    assert simulation.driver.calls == []
    assert {each.state for each in simulation.store.open_incidents()} == {State.PROPOSED}
    [page] = pages(simulation)
    assert all(f"run-{number}" in page.reason for number in range(1, 7))
    assert "trainwarden-remediator resume" in page.reason
    simulation.clock.elapsed += 86400
    simulation.tick(2)
    assert simulation.store.escalations() == [page], "waiting for a person is no reason to page for each run"
    events = simulation.store.with_events("run-1")[0][1]
    assert len([event for event in events if event.detail.startswith("waits: storm")]) == 1


def test_a_restart_that_begins_long_after_its_alert_counts_in_a_storm(make: Make) -> None:
    """As that of a job that was suspended, or one that a freeze has held back, beside another run on its node."""
    simulation = make(runs=2)
    first, second = simulation.clusters
    second.nodes, second.steps, first.state = first.nodes, True, JobState.OTHER
    simulation.captures.seconds = 20.0
    simulation.tick(900, every=30)
    first.state = JobState.RUNNING
    simulation.tick(3)
    assert [each.state for each in simulation.store.open_incidents()] == [State.CAPTURING]
    second.hang()
    simulation.tick(60)
    assert len(pages(simulation)) == 1
    assert [call for call in simulation.driver.calls if second.run_id in str(call)] == []
    assert simulation.store.of_run(second.run_id)[-1].state is State.PROPOSED


def test_a_storm_outlives_the_remediator_and_a_person_ends_it(make: Make, tmp_path: Path) -> None:
    simulation = make(runs=6)
    simulation.tick(3)
    simulation.restart()
    simulation.tick(20)
    assert simulation.driver.calls == []
    assert len(pages(simulation)) == 1
    assert main(["resume", "--state-dir", str(tmp_path / "0")]) == 0
    assert main(["resume", "--state-dir", str(tmp_path / "0")]) == 1
    simulation.restart()
    assert simulation.store.switches.storm("") is None


def test_runs_that_were_let_go_by_a_person_are_restarted_and_later_ones_count_anew(make: Make) -> None:
    simulation = make(runs=6)
    simulation.tick(3)
    simulation.resume()
    simulation.settle()
    assert {cluster.state for cluster in simulation.clusters} == {JobState.RUNNING}
    assert all(len([start for start in each.starts if start.ours]) == 1 for each in simulation.clusters)
    assert pages(simulation) == []


def test_a_storm_is_over_when_its_cause_has_gone_by_itself(make: Make) -> None:
    simulation = make(runs=6)
    simulation.tick(3)
    recovered = {cluster.run_id for cluster in simulation.clusters[:4]}
    alerts = simulation.alerts_now

    def others() -> list[Alert]:
        return [alert for alert in alerts() if alert.run_id not in recovered]

    simulation.alerts_now = others  # type: ignore[method-assign]
    simulation.settle()
    assert pages(simulation) == []
    assert [len(each.starts) for each in simulation.clusters] == [0, 0, 0, 0, 1, 1]


def test_two_runs_on_one_node_are_a_storm(make: Make) -> None:
    simulation = make(runs=2)
    simulation.clusters[1].nodes = simulation.clusters[0].nodes
    simulation.tick(10)
    assert simulation.driver.calls == []
    [page] = pages(simulation)
    assert "they share node n1 (2 runs)" in page.reason


@pytest.mark.parametrize("label", ["rack", "switch", "filesystem", "fabric"])
def test_two_runs_whose_alerts_name_one_cause_are_a_storm(make: Make, label: str) -> None:
    """Whichever of its alerts names it."""
    simulation = make(runs=2)
    alerts = simulation.alerts_now

    def named(name: str, alert: Alert) -> list[Alert]:
        other = {**alert.labels, "alertname": "TrainRunTimedOut", "failure_mode": "timeout"}
        shared = {label: name if alert.run_id == "run-1" else "x"}
        return [Alert({**alert.labels, **shared}, alert.starts_at), Alert(other, alert.starts_at)]

    simulation.alerts_now = lambda: [one for each in alerts() for one in named("x", each)]  # type: ignore[method-assign]
    simulation.tick(10)
    [page] = pages(simulation)
    assert f"share {'file system' if label == 'filesystem' else label} x (2 runs)" in page.reason
    simulation = make(runs=2)
    alerts = simulation.alerts_now
    simulation.alerts_now = lambda: [one for each in alerts() for one in named("y", each)]  # type: ignore[method-assign]
    simulation.tick(10)
    assert pages(simulation) == []


class LastNodes(NoNodes):
    """Prometheus has the nodes that jobs had before they ended."""

    def of_jobs(self, job_ids: Collection[str]) -> dict[str, list[str]]:
        return {job_id: ["n7"] for job_id in job_ids}


@pytest.mark.parametrize("known", [True, False])
def test_two_runs_that_crashed_on_one_node_are_a_storm(make: Make, known: bool) -> None:
    """The scheduler shows no nodes of a job that has ended."""
    simulation = make(runs=2)
    simulation.nodes = LastNodes() if known else NoNodes()
    simulation.restart()
    for cluster in simulation.clusters:
        cluster.crash()
    simulation.tick(10)
    assert [page.reason.count("they share node n7 (2 runs)") for page in pages(simulation)] == [1] * known
    assert (simulation.driver.calls == []) is known


def test_the_sixth_run_in_ten_minutes_waits_until_they_are_over(make: Make) -> None:
    simulation = make(runs=6)
    alerts = simulation.alerts_now
    simulation.alerts_now = lambda: [each for each in alerts() if each.run_id != "run-6"]  # type: ignore[method-assign]
    simulation.settle()
    assert [len(each.starts) for each in simulation.clusters] == [1, 1, 1, 1, 1, 0]
    simulation.alerts_now = alerts  # type: ignore[method-assign]
    simulation.tick(30)
    assert len(simulation.clusters[5].starts) == 0
    assert len(pages(simulation)) == 1
    simulation.tick(600, every=5)
    assert len(simulation.clusters[5].starts) == 1
    assert pages(simulation) == []


def take_over(simulation: Simulation) -> None:
    """A person ends the page of the storm, and says no more."""
    [page] = pages(simulation)
    simulation.clock.elapsed += 1
    simulation.switch(lambda connection, now: acknowledge(connection, None, "bob", now, page.id))
    simulation.restart()
    assert pages(simulation) == []


def test_a_storm_that_a_person_has_taken_over_ends_when_its_cause_has_gone(make: Make) -> None:
    simulation = make(runs=7)
    *many, last = simulation.clusters
    last.hangs = False
    simulation.tick(5)
    take_over(simulation)
    for each in many:
        each.hangs, each.step, each.high_water = False, 50.0, 50.0
    simulation.tick(20, every=5)
    assert simulation.store.switches.storm("") is None
    last.crash()
    simulation.tick(60, every=5)
    assert [each.state for each in simulation.store.of_run(last.run_id)] == [State.DONE]


def test_a_run_that_joins_a_storm_after_a_person_took_it_over_pages(make: Make) -> None:
    simulation = make(runs=7)
    last = simulation.clusters[-1]
    last.hangs = False
    simulation.tick(5)
    take_over(simulation)
    simulation.tick(20, every=5)
    assert pages(simulation) == [], "that person knows of the others"
    last.crash()
    simulation.tick(20, every=5)
    [page] = pages(simulation)
    assert last.run_id in page.reason
    assert simulation.driver.calls == []
    simulation.resume()
    simulation.tick(2)
    assert pages(simulation) == []


def _two_are_suspended(make: Make) -> Simulation:
    """Four runs on one node hang; of two of them nothing can be decided yet, although their alerts have come."""
    simulation = make(runs=4)
    for number, each in enumerate(simulation.clusters):
        each.nodes = simulation.clusters[0].nodes
        each.state = JobState.OTHER if number > 1 else each.state
    simulation.tick(5)
    assert [each.run_id for each in simulation.store.open_incidents()] == ["run-1", "run-2"]
    return simulation


def test_a_run_whose_alert_is_older_than_the_takeover_pages_as_well_when_it_joins(make: Make) -> None:
    simulation = _two_are_suspended(make)
    take_over(simulation)
    simulation.clock.elapsed += 60
    simulation.clusters[2].state = JobState.RUNNING
    simulation.tick(5)
    [page] = pages(simulation)
    assert "run-3" in page.reason


def test_restarts_that_are_decided_after_a_person_has_resumed_are_a_storm_of_their_own(make: Make) -> None:
    simulation = _two_are_suspended(make)
    simulation.clock.elapsed += 1
    simulation.resume()
    simulation.tick(60)
    assert [len(each.starts) for each in simulation.clusters] == [1, 1, 0, 0]
    for each in simulation.clusters[2:]:
        each.state = JobState.RUNNING
    simulation.tick(60)
    assert [len(each.starts) for each in simulation.clusters] == [1, 1, 0, 0]
    assert len(pages(simulation)) == 1


def test_a_start_that_is_held_already_is_given_in_a_storm(make: Make) -> None:
    simulation = make(runs=6)
    alerts = simulation.alerts_now
    simulation.alerts_now = lambda: [each for each in alerts() if each.run_id == "run-1"]  # type: ignore[method-assign]
    simulation.tick(1)
    assert simulation.driver.calls == ["prepare: none"]
    simulation.alerts_now = alerts  # type: ignore[method-assign]
    simulation.tick(30)
    assert simulation.driver.calls == ["prepare: none", "commit: none"]
