"""The remediator's guide says what the remediator does."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import yaml

from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.cli import parser
from trainwarden_remediator.decide import AlertedFailure, History, decide
from trainwarden_remediator.incident import Action, State
from trainwarden_remediator.metrics import Metrics, RemediatorCollector
from trainwarden_remediator.policy import Backoff, Implementation, ModePolicy, Policy, PolicyFile, load_policy, shipped

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "remediator.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return GUIDE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", section(title), re.MULTILINE)


def flags() -> dict[str, argparse.Action]:
    return {flag: action for action in parser()._actions for flag in action.option_strings if flag != "-h"}


def test_every_flag_is_documented_and_every_documented_flag_exists() -> None:
    assert set(re.findall(r"`(--[\w.-]+)`", section("Flags"))) == set(flags())


def test_the_documented_defaults_are_the_real_ones() -> None:
    rows = dict(re.findall(r"^\| `(--[\w.-]+)` \| `([^`|]*)` \|", section("Flags"), re.MULTILINE))
    real = {flag: str(flags()[flag].default) for flag in rows if flag != "--slurm-bin-dir"}
    assert real == {flag: default for flag, default in rows.items() if flag != "--slurm-bin-dir"}
    assert "--poll-interval" in real


def test_every_flag_that_the_text_names_exists() -> None:
    of_other_programs = {
        *("--requeue", "--comment", "--json", "--no-requeue", "--jobs", "--states"),
        *("--run-id", "--http.config.file"),
    }
    assert set(re.findall(r"`?(--[a-z][\w.-]+)", GUIDE)) - of_other_programs <= set(flags())


def test_every_state_is_explained() -> None:
    assert first_cells("States of an incident") == [state.value for state in State]


def test_every_key_of_a_policy_is_explained_and_no_other() -> None:
    keys = set(ModePolicy.model_fields) | set(Implementation.model_fields)
    documented = re.findall(r"^\| `([^`]+)` \| (?:Always, )?(?:Selective )?\|", section("Policies"), re.MULTILINE)
    assert set(documented) == keys - {"implementation"}
    delay = next(line for line in section("Policies").splitlines() if line.startswith("| `restart_delay_seconds`"))
    assert all(f"`{key}`" in delay for key in Backoff.model_fields)


def test_the_example_policy_is_valid_and_shows_every_key() -> None:
    example = yaml.safe_load(section("Policies").partition("```yaml\n")[2].partition("```")[0])
    checked = PolicyFile.model_validate(example).policies[0].implementation
    assert set(example["policies"][0]["implementation"]) == set(Implementation.model_fields)
    assert checked.restart_delay_seconds is not None


def restarts(policy: Policy, mode: str) -> int:
    """How often the policy restarts a run that always hangs, in one failure mode."""
    count = 0
    while decide(AlertedFailure(mode, "hang"), History({mode: count}), policy, 0).action is Action.RESTART:
        count += 1
    return count


@pytest.mark.parametrize("name", shipped())
def test_the_table_of_policies_gives_their_real_budgets(name: str) -> None:
    [row] = [line for line in section("Policies").splitlines() if line.startswith(f"| `{name}`")]
    cells = [re.match(r"\d+|no", cell.strip()) for cell in row.split("|")[2:5]]
    stated = [0 if cell is None or cell[0] == "no" else int(cell[0]) for cell in cells]
    assert stated == [restarts(load_policy(name), mode) for mode in ("crash", "stall", "timeout")]


class EmptyStore:
    """As much of a store as the metrics ask for."""

    def count_by_state(self) -> dict[str, int]:
        return {}

    def escalations(self) -> list[object]:
        return []


def test_every_metric_is_documented_with_its_labels(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("rate_limit: {interval: 1s}\n")
    web_config = ReloadingWebConfig(tmp_path / "web.yml")
    metrics = Metrics()
    metrics.received(200, 1.0)
    metrics.polled(1.0, success=True)
    metrics.ticked(1.0, success=True)
    real = {}
    for family in RemediatorCollector(metrics, EmptyStore(), web_config).collect():  # type: ignore[arg-type]  # of a store
        labels = getattr(family, "_labelnames", ())
        name = f"{family.name}_total" if family.type == "counter" else family.name
        real[name] = set(labels)
    documented = re.findall(r"^\| `(\w+)(?:\{([^}]*)\})?`", section("Metrics"), re.MULTILINE)
    assert {name: set(labels.split(",")) if labels else set() for name, labels in documented} == real
