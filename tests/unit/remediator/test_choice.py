"""Which policy a run is decided by: the operator's word, then the record's wish, then the default."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.examine.choice import Policies, load_policies
from trainwarden_remediator.incidents.incident import Action, Incident, State

MINE = "policies: [{mode: stall, implementation: {class_name: AlwaysRestartPolicy, max_retries: 7}}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "policies"
    path.mkdir()
    (path / "mine.yaml").write_text(MINE)
    return path


@pytest.fixture
def decide_once(tmp_path: Path) -> Iterator[Callable[..., Incident]]:
    made: list[Simulation] = []

    def decided(asked: str | None, policies: Policies) -> Incident:
        simulation = Simulation(tmp_path / f"state{len(made)}", two_phase=True)
        made.append(simulation)
        simulation.policies, simulation.asked = policies, asked
        simulation.restart()
        [incident] = simulation.settle()
        return incident

    yield decided
    for each in made:
        each.close()


def test_a_run_that_asks_for_nothing_gets_the_default(decide_once: Callable[..., Incident]) -> None:
    incident = decide_once(None, load_policies("default", None, [], "act"))
    assert (incident.policy, incident.budget_limit) == ("default", 3)
    assert "record" not in incident.reason


def test_a_run_is_decided_by_the_installed_policy_that_its_record_asks_for(
    decide_once: Callable[..., Incident], folder: Path
) -> None:
    policies = load_policies("default", folder, [])
    mine = decide_once("mine", policies)
    assert (mine.policy, mine.budget_limit, mine.state) == ("mine", 7, State.DONE)
    observe = decide_once("observe", policies)
    assert (observe.policy, observe.action) == ("observe", Action.NONE)


def test_a_policy_that_is_not_installed_is_warned_of_once_and_the_default_is_used(
    decide_once: Callable[..., Incident], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    incident = decide_once("gone", load_policies("default", None, [], "act"))
    assert (incident.policy, incident.state) == ("default", State.DONE)
    objection = "the record requests policy gone, which is not installed: policy default is used"
    assert incident.reason.endswith(f"; {objection}")
    assert [record.getMessage() for record in caplog.records] == [f"run {RUN}: {objection}"]


@pytest.mark.parametrize("name", ["../policies/mine", "mine.yaml", "{path}", "<!channel>", "Mine", "m" * 65, "mine\n"])
def test_a_record_can_name_no_file_and_its_text_is_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    policies = load_policies("default", folder, [])
    monkeypatch.chdir(folder)
    choice = policies.of(RUN, name.format(path=folder / "mine.yaml"))
    assert choice.policy is policies.default
    assert choice.objection == "the record requests a policy by an invalid name: policy default is used"


def test_the_operators_setting_for_a_run_beats_its_record(decide_once: Callable[..., Incident]) -> None:
    policies = load_policies("default", None, [f"{RUN[:3]}*=megatron_aggressive", "*=observe"])
    incident = decide_once("observe", policies)
    assert (incident.policy, incident.state) == ("megatron_aggressive", State.DONE)
    assert policies.of("other", "megatron_aggressive").policy.name == "observe"


def test_no_record_makes_a_remediator_restart_that_is_to_observe(decide_once: Callable[..., Incident]) -> None:
    incident = decide_once("megatron_aggressive", load_policies("observe", None, []))
    assert (incident.policy, incident.action) == ("observe", Action.NONE)
    assert "megatron_aggressive" in incident.reason


def test_a_default_from_the_folder_or_a_file_may_be_asked_for_by_its_name(folder: Path) -> None:
    assert load_policies("mine", folder, []).default.rules["stall"].max_retries == 7
    policies = load_policies(str(folder / "mine.yaml"), None, ["a=mine", "*=observe"])
    assert policies.of("a", None).policy.name == "mine"


def test_everything_wrong_with_the_folder_and_the_assignments_is_named_at_once(folder: Path) -> None:
    (folder / "default.yaml").write_text(MINE)
    (folder / "mine.yml").write_text(MINE)
    (folder / "No Name.yaml").write_text(MINE)
    (folder / "broken.yaml").write_text("policies: 3")
    (folder / "README").write_text("not a policy")
    assignments: list[Any] = ["*=gone", "mine", "=mine"]
    with pytest.raises(ConfigError) as raised:
        load_policies("nonsense", folder, assignments)
    problems = "\n".join(raised.value.problems)
    assert len(raised.value.problems) == 8
    for said in (
        "default.yaml: there is",
        "mine.yml: there is",
        "No Name.yaml: expected a name",
        "broken.yaml: line 1: policies",
    ):
        assert said in problems
    for said in ("--policy: 'nonsense'", "'*=gone': expected", "'mine': expected", "'=mine': expected"):
        assert said in problems
    with pytest.raises(ConfigError, match=r"--policy-dir: .*gone: No such file"):
        load_policies("default", folder / "gone", [])


@pytest.mark.parametrize("trust", ["complete", None])
def test_a_restarted_run_gets_the_trust_of_the_policy_that_restarts_it(
    folder: Path, tmp_path: Path, trust: str | None
) -> None:
    (folder / "mine.yaml").write_text(MINE + (f"checkpoints: {{trust: {trust}}}\n" if trust else ""))
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    simulation = Simulation(tmp_path / "state", two_phase=True)
    simulation.policies, simulation.asked = load_policies("default", folder, []), "mine"
    simulation.runs_dir = tmp_path / "runs"
    simulation.restart()
    simulation.settle()
    simulation.close()
    assert simulation.driver.environment == ({"TRAINWARDEN_CHECKPOINT_TRUST": trust} if trust else {})
    assert json.loads((tmp_path / "runs" / RUN / "_restart").read_text()).get("checkpoint_trust") == trust
