"""Observe, canary, act: who is acted upon; and in observe the score against what people did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.cli import main
from trainwarden_remediator.drivers.driver import Absent, JobState
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.incidents.incident import Action, Incident, State
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.policies.limits import Limits, Once
from trainwarden_remediator.policies.modes import OPT_IN, CanaryRuns, Mode
from trainwarden_remediator.policies.policy import Policy, load_policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation
from trainwarden_remediator.store.score import read_scores

DEFAULT = load_policy("default")
NOT_OPTED_IN = "the run has not opted in, and is only observed"


@pytest.mark.parametrize(
    ("cluster", "policy", "opted_in", "observed"),
    [
        (OPT_IN, None, False, NOT_OPTED_IN),
        (OPT_IN, None, True, None),
        (OPT_IN, "act", False, None),
        (OPT_IN, "observe", True, "policy default is in the mode observe"),
        ("act", None, False, None),
        ("act", "observe", True, "policy default is in the mode observe"),
        ("act", "canary", True, "the mode is canary, and the run is none of its runs"),
        ("canary", "act", True, "the mode is canary, and the run is none of its runs"),
        ("observe", "act", True, "the cluster is in the mode observe"),
    ],
)
def test_the_more_cautious_mode_counts_and_a_run_is_observed_until_it_opts_in(
    cluster: str, policy: Mode | None, opted_in: bool, observed: str | None
) -> None:
    chosen = replace(DEFAULT, mode_of_action=policy, canary_runs=CanaryRuns(share=0))
    policies = Policies(chosen, {}, ((RUN, chosen),) if opted_in else (), cluster)
    assert policies.observed(RUN, policies.of(RUN, None)) == observed


@pytest.mark.parametrize("asked", ["default", "megatron_transient"])
def test_a_record_that_names_a_policy_opts_in_and_one_that_names_none_of_them_does_not(asked: str) -> None:
    policies = Policies(DEFAULT, {"megatron_transient": load_policy("megatron_transient")})
    assert policies.observed(RUN, policies.of(RUN, asked)) is None
    assert policies.observed(RUN, policies.of(RUN, "gone")) == NOT_OPTED_IN
    assert policies.observed(RUN, policies.of(RUN, None)) == NOT_OPTED_IN


def test_a_canary_acts_on_the_named_runs_and_on_a_share_that_only_grows() -> None:
    runs = [f"run-{number}" for number in range(1000)]
    tenth, half = CanaryRuns(share=0.1), CanaryRuns(share=0.5)
    chosen = {run for run in runs if tenth.includes(run)}
    assert 60 < len(chosen) < 140
    assert all(half.includes(run) for run in chosen)
    assert CanaryRuns(share=0.0, runs=["debug-*"]).includes("debug-1")
    assert not CanaryRuns(share=0.0, runs=["debug-*"]).includes("run-1")


@pytest.fixture
def observing(tmp_path: Path) -> Iterator[Callable[..., Simulation]]:
    made: list[Simulation] = []

    def build(policy: Policy = DEFAULT) -> Simulation:
        simulation = Simulation(tmp_path / f"state{len(made)}", two_phase=True)
        made.append(simulation)
        simulation.policies = Policies(policy, {policy.name: policy}, mode="observe")
        simulation.restart()
        return simulation

    yield build
    for each in made:
        each.close()


def decided(sim: Simulation) -> Incident:
    sim.tick(5)
    [incident] = sim.store.of_run(RUN)
    assert (incident.action, incident.state, sim.driver.calls) == (Action.NONE, State.SUPPRESSED, [])
    return incident


def score(sim: Simulation, seconds: float = 120.0) -> dict[tuple[str, str], int]:
    sim.clock.elapsed += seconds
    sim.scores.settle()
    with sim.engine.begin() as connection:
        found = read_scores(connection)
    return {key: count for each in found.values() for key, count in each.counts.items()}


def test_an_older_attempt_that_is_shown_again_is_no_restart_by_people(
    observing: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter of the failed attempt is away, and a node of before shows what the run has left there."""
    sim = observing()
    present = sim.run(RUN)
    assert isinstance(present, ReportedRun)
    decided(sim)
    older = replace(present, attempt=present.attempt - 1, attempt_key="sim:16:0", state="failed")
    monkeypatch.setattr(sim, "run", lambda _run_id: older)
    assert score(sim) == {}
    assert score(sim, 24 * 3600.0) == {("restart", "unseen"): 1}


def test_an_observed_run_is_not_touched_and_its_reason_states_what_would_be_done(
    observing: Callable[..., Simulation],
) -> None:
    incident = decided(observing())
    assert incident.reason == (
        "the cluster is in the mode observe: it would be restarted, for policy default restarts after every stall; "
        "no checkpoint is reported: it begins anew, and 40 steps may be lost"
    )


@pytest.mark.parametrize("observed", [True, False])
def test_that_a_job_cannot_be_brought_back_any_more_pages_where_it_would_have_been(
    observing: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, observed: bool
) -> None:
    sim = observing()
    if not observed:
        sim.policies.take(replace(sim.policies, mode="act"))
    monkeypatch.setattr(sim.driver, "job", lambda _job_id: Absent("FAILED"))
    sim.tick(5)
    [incident] = sim.store.of_run(RUN)
    assert "it cannot be requeued, only submitted again" in incident.reason
    assert [each.id for each in sim.store.escalations()] == ([] if observed else [incident.id])
    assert ("the cluster is in the mode observe" in incident.reason) == observed


def test_a_person_who_restarts_it_agrees(observing: Callable[..., Simulation]) -> None:
    sim = observing()
    decided(sim)
    assert score(sim) == {}
    sim.cluster.requeue_by_slurm()
    sim.tick(5)
    assert score(sim) == {("restart", "restarted"): 1}


def test_a_run_that_goes_on_by_itself_would_have_been_ended_for_nothing(observing: Callable[..., Simulation]) -> None:
    sim = observing()
    decided(sim)
    sim.cluster.step = sim.cluster.high_water = 41.0
    assert score(sim) == {("restart", "recovered"): 1}


def test_a_person_who_cancels_disagrees(observing: Callable[..., Simulation]) -> None:
    sim = observing()
    decided(sim)
    sim.cluster.cancel()
    assert score(sim) == {("restart", "cancelled"): 1}


def test_what_nobody_did_anything_about_is_settled_after_a_day(observing: Callable[..., Simulation]) -> None:
    sim = observing()
    decided(sim)
    assert score(sim, 3600) == {}
    sim.prometheus_down = True
    assert score(sim, 86400) == {}
    sim.prometheus_down = False
    assert score(sim) == {("restart", "left"): 1}


def test_a_failure_that_the_policy_leaves_and_a_person_restarts_was_missed(
    observing: Callable[..., Simulation],
) -> None:
    sim = observing(load_policy("none"))
    decided(sim)
    sim.cluster.requeue_by_slurm()
    sim.tick(5)
    assert score(sim) == {("leave", "restarted"): 1}


def test_the_command_prints_the_score(observing: Callable[..., Simulation], capsys: pytest.CaptureFixture[str]) -> None:
    sim = observing()
    decided(sim)
    state = str(sim.folder)
    assert main(["score", "--state-dir", state]) == 0
    assert "     1  not known yet" in capsys.readouterr().out
    sim.cluster.state = JobState.RUNNING
    sim.cluster.requeue_by_slurm()
    sim.tick(5)
    score(sim)
    assert main(["score", "--state-dir", state, "--policy", "default"]) == 0
    out = capsys.readouterr().out
    assert "policy default\n     1  would have restarted, and it was restarted without it\n" in out
    assert "restarts that people made as well: 100%\n  left, but restarted: no case yet\n" in out
    assert main(["score", "--state-dir", state, "--policy", "other"]) == 0
    assert "no decision to score yet" in capsys.readouterr().err
    assert main(["score", "--state-dir", state, "--since", "soon"]) == 2
    assert "--since: 'soon' is no duration" in capsys.readouterr().err


@pytest.mark.parametrize("two_phase", [True, False], ids=["two-phase", "one-call"])
@pytest.mark.parametrize("change", ["observe", "maintenance", "never"])
def test_a_restart_that_was_decided_is_not_made_once_a_mode_a_maintenance_or_another_policy_forbids_it(
    tmp_path: Path, two_phase: bool, change: str
) -> None:
    """Policies are read again during the delay of a restart, or a maintenance begins then; or an operator gives the run
    a policy that restarts no such failure.
    """
    rule = Implementation(class_name="AlwaysRestartPolicy", restart_delay_seconds=Backoff(initial=30))
    once = Once.model_validate({"from": "2027-01-15T08:00:20Z", "to": "2027-01-15T08:02:00Z"})
    limits = Limits(maintenance=[once] if change == "maintenance" else [])
    sim = Simulation(tmp_path / "state", two_phase=two_phase, policy=Policy("patient", {"stall": rule}, limits=limits))
    sim.tick(5)
    assert [each.state for each in sim.store.open_incidents()] == [State.PROPOSED]
    if change == "observe":
        sim.policies.take(replace(sim.policies, mode="observe"))
    if change == "never":
        crashes_alone = Policy("mine", {"crash": rule, "stall": Implementation(class_name="NoRestartPolicy")})
        sim.policies.take(replace(sim.policies, assigned=[("run-*", crashes_alone)]))
    sim.tick(60, every=5)
    assert sim.driver.calls == []
    [first, *_] = sim.store.of_run(RUN)
    assert first.state is State.SUPPRESSED
    assert change in first.reason
    sim.tick(90, every=5)
    assert sim.our_starts == ([0] if change == "maintenance" else []), "a maintenance ends"
    sim.close()
