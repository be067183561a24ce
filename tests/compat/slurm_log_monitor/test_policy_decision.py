"""Which list decides, and what the decision says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.decisions import decided, restarts
from trainwarden_remediator.incidents.incident import Action

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Policy Decision")

RULE = """\
policies:
  - mode: crash
    implementation:
      class_name: SelectiveRestartPolicy
      max_retries: 3
      default_action: {default}
      restart_on_error_types:
        - nccl
      exclude_error_types:
        - oom
"""


def rule(user: User, default: str) -> Path:
    return user.file(f"config/restart/{default}.yaml", RULE.format(default=default))


def test_a_listed_type_restarts_an_excluded_one_stops_and_the_default_decides_the_others(user: User) -> None:
    kinds = ("nccl", "oom", "hang", "license", None)
    assert {
        default: [restarts(rule(user, default), "crash", kind) for kind in kinds] for default in ("restart", "stop")
    } == {"restart": [True, False, True, True, True], "stop": [True, False, False, False, False]}


def test_a_failure_mode_without_a_policy_is_never_restarted(user: User) -> None:
    policy = rule(user, "restart")
    assert [mode for mode in ("stall", "timeout", "success") if restarts(policy, mode, "nccl")] == []


def test_the_decision_has_action_reason_and_attempt_count(user: User) -> None:
    policy = rule(user, "stop")
    first, last = decided(policy, "crash", "nccl", used=1), decided(policy, "crash", "nccl", used=3)
    assert (first.action, first.used, first.limit) == (Action.RESTART, 1, 3)
    assert first.reason == "policy stop restarts after errors of the type nccl"
    assert (last.action, last.used, last.limit) == (Action.ESCALATE, 3, 3)
    assert last.reason == "restart budget used up: 3 of 3 after a crash"
    excluded = decided(policy, "crash", "oom")
    assert (excluded.action, excluded.used, excluded.limit) == (Action.NONE, 0, 3)
    assert excluded.reason == "the error type oom is excluded by policy stop: a restart would not help"


def test_a_type_in_both_lists_is_not_restarted(user: User) -> None:
    policy = user.file("both.yaml", RULE.format(default="restart").replace("- oom", "- nccl"))
    assert not restarts(policy, "crash", "nccl")


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="check-policy says nothing of a type that is in both lists"
)
def test_a_type_in_both_lists_is_warned_about(user: User) -> None:
    policy = user.file("both.yaml", RULE.format(default="restart").replace("- oom", "- nccl"))
    _, said = user.check_policy(policy)
    assert any("nccl" in line and "exclude_error_types" in line for line in said.splitlines()), said
