"""What is printed at the start of `trainwarden up`: what may restart the command, how often, and what only alerts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwarden.errors import UsageError
from trainwarden.stack.budgets import RestartPolicy, choose_policy, restartable
from trainwarden_remediator.cli import main as remediator

USUAL = RestartPolicy("megatron_transient", {"crash": 3, "stall": 2, "timeout": 1}, frozenset({"crash"}))


def incident(mode: str, left: int | None) -> dict[str, Any]:
    return {"failure_mode": mode, "budget": {"used": 0, "limit": 3, "left": left}}


@pytest.mark.parametrize(
    ("policy", "incidents", "sentence"),
    [
        (RestartPolicy("observe"), [], "everything alerts people only: the policy observe restarts nothing"),
        (
            RestartPolicy("p", {"stall": 2}, mode_of_action="observe"),
            [],
            "everything alerts people only: the policy p is in the mode observe",
        ),
        (
            RestartPolicy("p", {"stall": 2, "crash": 1, "timeout": 1}, mode_of_action="canary"),
            [],
            (
                "the policy p, in the mode canary for a part of the runs, may restart it after a crash (1 left), a "
                "standstill (2 left), no sign of life (1 left); all else alerts people only"
            ),
        ),
        (
            USUAL,
            [],
            (
                "the policy megatron_transient may restart it after a crash whose cause the policy lists (3 left), a "
                "standstill (2 left), no sign of life (1 left); all else alerts people only"
            ),
        ),
        (
            RestartPolicy("/home/me/mine.yaml", {"stall": 2}),
            [],
            (
                "the policy mine.yaml may restart it after a standstill (2 left); a crash, no sign of life and all "
                "else alert people only"
            ),
        ),
        (
            USUAL,
            [incident("stall", 1), incident("stall", 0), incident("crash", 2), incident("crash", None)],
            (
                "the policy megatron_transient may restart it after a crash whose cause the policy lists (2 of 3 "
                "left), no sign of life (1 left); a standstill (none of 2 left) and all else alert people only"
            ),
        ),
        (
            RestartPolicy("p", {"stall": 2}),
            [incident("stall", 0)],
            "everything alerts people only: of the policy p no restart of this run is left",
        ),
    ],
)
def test_what_may_restart_a_command_is_said(
    policy: RestartPolicy, incidents: list[dict[str, Any]], sentence: str
) -> None:
    assert restartable(policy, incidents) == sentence


@pytest.mark.parametrize("name", ["megatron_transient", "observe", "canary"])
def test_a_policy_is_read_as_the_remediator_reads_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert remediator(["check-policy", name]) == 0
    lines = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert remediator(["check-policy", "--json", name]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["policy"] == name
    policy = RestartPolicy.parse(name, printed.encode())
    assert policy.limits == {mode: int(rule.rpartition(" ")[2]) for mode, rule in lines if "at most" in rule}
    assert policy.selective == {mode for mode, rule in lines if "Selective" in rule}


@pytest.mark.process
def test_the_policy_that_a_run_requests_is_its_own(tmp_path: Path) -> None:
    assert choose_policy("default", {})[1].limits == {"crash": 2, "stall": 3}
    policy, restarts = choose_policy("default", {"TRAINWARDEN_POLICY": "observe"})
    assert (policy, restarts.name, restarts.restarts) == ("default", "observe", False)
    assert choose_policy("none", {"TRAINWARDEN_POLICY": "default"})[1].name == "none", "no run makes it restart"
    assert choose_policy("default", {"TRAINWARDEN_POLICY": "no_such"})[1].name == "default"
    (tmp_path / "mine.yaml").write_text("defaults: [default]\nmode_of_action: observe\n")
    assert choose_policy(str(tmp_path / "mine.yaml"), {})[1].restarts is False


@pytest.mark.process
def test_of_a_wrong_policy_every_mistake_is_named_and_no_other_program(tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("policies:\n  - mode: crahs\n    implementation: {class_name: NoRestartPolicy, max_retry: 5}\n")
    with pytest.raises(UsageError) as error:
        choose_policy(str(policy), {})
    assert "mode: 'crahs'" in str(error.value)
    assert "max_retry: unknown key" in str(error.value)
    assert "trainwarden-remediator" not in str(error.value)
