"""The shipped policies: what each restarts, what it never restarts, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.decisions import restarts, restarts_in_all

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Restart Policies")

# What is no failure of hardware, network or scheduler: it would come back.
CODE_BUGS = {"exception", "torch"}
# Of policies that are selective: the types of a crash that they restart, and those that they never do.
WILL = {
    "megatron_transient": {
        *("hang", "deadlock"),
        *("nccl", "nccl_timeout"),
        *("communication", "distributed_timeout"),
        *("watchdog_timeout", "node_failure"),
    },
    "megatron_aggressive": {
        *("hang", "deadlock", "nccl", "nccl_timeout", "communication", "distributed_timeout", "watchdog_timeout"),
        *("slurm_failure", "numerical_instability", "node_failure", "storage", "unknown"),
    },
    "megatron_conservative": {"hang", "nccl_timeout", "distributed_timeout", "watchdog_timeout"},
}
PERMANENT = {"oom", "host_oom", *CODE_BUGS, "configuration", "model_creation"}
WILL_NOT: dict[str, set[str | None]] = {
    "megatron_transient": {*PERMANENT, "numerical_instability", "unknown", None},
    "megatron_aggressive": {*PERMANENT},
    "megatron_conservative": {*PERMANENT, "numerical_instability", "nccl", "slurm_failure", "unknown", None},
}
# A failure that each policy restarts, so that its limit is what ends the restarts.
LIMITS = {
    ("default", "crash"): 2,
    ("default", "stall"): 3,
    ("default", "success"): 0,
    ("megatron_transient", "crash"): 3,
    ("megatron_transient", "stall"): 2,
    ("megatron_transient", "timeout"): 1,
    ("megatron_aggressive", "crash"): 5,
    ("megatron_aggressive", "stall"): 3,
    ("megatron_conservative", "crash"): 2,
    ("megatron_conservative", "stall"): 1,
    ("megatron_conservative", "timeout"): 0,
}


def test_default_restarts_on_all_crashes_and_stalls_and_not_on_success() -> None:
    kinds = ("unknown", *WILL["megatron_aggressive"], *WILL_NOT["megatron_transient"])
    assert [kind for kind in kinds if not restarts("default", "crash", kind)] == []
    assert [kind for kind in kinds if not restarts("default", "stall", kind)] == []
    assert not restarts("default", "success")


def test_selective_policies_restart_what_their_lists_say_and_nothing_that_they_exclude() -> None:
    wrong = [
        (policy, kind, "restarted") for policy in WILL for kind in WILL_NOT[policy] if restarts(policy, "crash", kind)
    ]
    wrong += [(policy, kind, "left") for policy in WILL for kind in WILL[policy] if not restarts(policy, "crash", kind)]
    assert wrong == []


def test_each_limit_is_the_number_of_restarts() -> None:
    found = {(policy, mode): restarts_in_all(policy, mode, "hang") for policy, mode in LIMITS}
    assert found == LIMITS


def test_check_policy_shows_the_limits_of_each_policy(user: User) -> None:
    shown = {policy: user.check_policy(policy) for policy, _ in LIMITS}
    missing = [
        (policy, mode)
        for (policy, mode), limit in LIMITS.items()
        if limit
        and not any(f"{mode}: " in line and line.endswith(f" {limit}") for line in shown[policy][1].splitlines())
    ]
    assert ([status for status, _ in shown.values()], missing) == ([0] * len(shown), [])
