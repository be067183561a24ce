"""The judgement: budgets, lists and defaults."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.offenders import assert_none
from trainwarden_remediator.decide.decide import AlertedFailure, Nothing, Restart, StopAndPage, decide
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import MODES, Action
from trainwarden_remediator.incidents.price import Loss
from trainwarden_remediator.policies.policy import Policy, load_policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation

NAMES = ["oom", "hang", "nccl", "torch", "exception", "watchdog_timeout", "nccl_collective", "cancelled"]


def decided(failure: AlertedFailure, history: History, policy: Policy, now: float) -> Restart | StopAndPage | Nothing:
    decision = decide(failure, history, policy, now)
    assert not isinstance(decision, Wait)
    return decision


def selective(**options: object) -> Policy:
    rule = {"class_name": "SelectiveRestartPolicy", "max_retries": 2, **options}
    return Policy("mine", {"crash": Implementation.model_validate(rule)})


@given(limit=st.integers(0, 20), mode=st.sampled_from(MODES[:3]), delay=st.none() | st.floats(0, 60))
def test_n_retries_mean_exactly_n(limit: int, mode: str, delay: float | None) -> None:
    backoff = None if delay is None else Backoff(initial=delay)
    rule = Implementation(class_name="AlwaysRestartPolicy", max_retries=limit, restart_delay_seconds=backoff)
    policy = Policy("p", {mode: rule})
    restarts = 0
    while (decision := decided(AlertedFailure(mode), History({mode: restarts}), policy, 0)).action is Action.RESTART:
        restarts += 1
    assert (restarts, decision.action) == (limit, Action.ESCALATE)
    assert (decision.used, decision.limit) == (limit, limit)


@given(used=st.dictionaries(st.sampled_from(["stall", "timeout"]), st.integers(0, 50)))
def test_each_failure_mode_has_a_budget_of_its_own(used: dict[str, int]) -> None:
    decision = decided(AlertedFailure("crash", "hang"), History(used), load_policy("megatron_transient"), 0)
    assert decision.action is Action.RESTART


names = st.lists(st.sampled_from(NAMES), max_size=4)


@given(
    included=names,
    excluded=names,
    error_type=st.none() | st.sampled_from(NAMES),
    default=st.sampled_from(["restart", "stop"]),
)
def test_what_is_excluded_is_never_restarted_whatever_else_includes_it(
    included: list[str], excluded: list[str], error_type: str | None, default: str
) -> None:
    policy = selective(
        restart_on_error_types=included,
        exclude_error_types=excluded,
        restart_on_subsystems=["distributed"],
        default_action=default,
    )
    decision = decided(AlertedFailure("crash", error_type, "distributed"), History({}), policy, 0)
    assert (decision.action is Action.NONE) == (error_type in excluded or _alias(error_type) in map(_alias, excluded))


def _alias(name: str | None) -> str | None:
    return {"torch": "exception", "watchdog_timeout": "hang", "nccl_collective": "nccl"}.get(name or "", name)


CHOICES: list[tuple[dict[str, object], AlertedFailure, bool]] = [
    ({"restart_on_error_types": ["watchdog_timeout"]}, AlertedFailure("crash", "hang"), True),
    ({"restart_on_error_types": ["hang"]}, AlertedFailure("crash", "nccl"), False),
    ({"restart_on_subsystems": ["distributed"]}, AlertedFailure("crash", "odd", "distributed"), True),
    ({"restart_on_signals": ["peer_reset"]}, AlertedFailure("crash", "odd", None, "peer_reset"), True),
    ({"restart_on_signals": ["peer_reset"]}, AlertedFailure("crash"), False),
    ({"restart_on_error_types": ["timeout"]}, AlertedFailure("crash", "time_limit"), True),
    ({"restart_on_error_types": ["hang"]}, AlertedFailure("crash", "watchdog_timeout"), True),
    ({"restart_on_subsystems": ["slurm"]}, AlertedFailure("crash", "odd", "scheduler"), True),
    ({"restart_on_signals": ["nccl_error"]}, AlertedFailure("crash", "nccl", None, "nccl_system"), True),
    (
        {"restart_on_signals": ["nccl_error"]},
        AlertedFailure("crash", "nccl_timeout", None, "nccl_watchdog_timeout"),
        False,
    ),
    ({"restart_on_signals": ["nccl_error"]}, AlertedFailure("crash", "nccl"), True),
    ({"restart_on_signals": ["our_own"]}, AlertedFailure("crash", "odd", None, "our_own"), True),
    ({"default_action": "restart", "exclude_error_types": ["oom"]}, AlertedFailure("crash", "host_oom"), False),
    ({"default_action": "restart", "exclude_error_types": ["host_oom"]}, AlertedFailure("crash", "oom"), True),
    ({"default_action": "restart"}, AlertedFailure("crash"), True),
    ({}, AlertedFailure("crash"), False),
]


def test_error_type_subsystem_signal_and_default_decide_in_this_order() -> None:
    found = [
        (options, failure, restarts, decided(failure, History({}), selective(**options), 0))
        for options, failure, restarts in CHOICES
    ]
    assert_none(
        f"{options}, {failure}: {decision}"
        for options, failure, restarts, decision in found
        if (decision.action is Action.RESTART) is not restarts
    )


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (
            AlertedFailure("crash", "exception"),
            "the error type exception is excluded by policy megatron_transient: a restart would not help",
        ),
        (
            AlertedFailure("crash", "unknown"),
            "nothing is known about the error (unknown): policy megatron_transient does not restart by default",
        ),
        (
            AlertedFailure("crash"),
            "nothing is known about the error (no error type): policy megatron_transient does not restart by default",
        ),
        (
            AlertedFailure("crash", "odd"),
            "policy megatron_transient does not list the error type odd: it does not restart by default",
        ),
        (AlertedFailure("crash", "nccl"), "policy megatron_transient restarts after errors of the type nccl"),
        (AlertedFailure("stall", "hang"), "policy megatron_transient restarts after every stall"),
        (AlertedFailure("success"), "policy megatron_transient never restarts after a success"),
    ],
)
def test_a_reason_is_a_sentence_that_names_the_policy(failure: AlertedFailure, reason: str) -> None:
    assert decided(failure, History({}), load_policy("megatron_transient"), 0).reason == reason


def test_the_delay_grows_with_each_restart_up_to_its_maximum() -> None:
    rule = {"initial": 10.0, "factor": 3.0, "max": 100.0}
    policy = selective(default_action="restart", max_retries=9, restart_delay_seconds=rule)
    crash = AlertedFailure("crash")
    decisions = [decided(crash, History({"crash": used}), policy, 1000) for used in range(5)]
    delays = [each.not_before - 1000 for each in decisions if isinstance(each, Restart)]
    assert delays == [10, 30, 90, 100, 100]


def test_restarts_of_all_modes_without_a_step_end_at_the_largest_budget() -> None:
    policy = load_policy("megatron_aggressive")
    stall = AlertedFailure("stall", "hang")
    assert decided(stall, History({"crash": 3, "stall": 1}, fruitless=4), policy, 0).action is Action.RESTART
    last = decided(stall, History({"crash": 4, "stall": 1}, fruitless=5), policy, 0)
    assert (last.action, last.used, last.limit) == (Action.ESCALATE, 5, 5)
    assert last.reason == "5 restarts after failures of all kinds, and the run has gained no step since"


@pytest.mark.parametrize(
    ("high_water", "checkpoint", "text"),
    [
        (None, None, ""),
        (670, None, "no checkpoint is reported: it begins anew, and 670 steps may be lost"),
        (670, 600, "its last reported checkpoint is of step 600: 70 steps are repeated"),
        (600, 600, "its last reported checkpoint is of step 600: 0 steps are repeated"),
    ],
)
def test_what_a_restart_loses_is_stated(high_water: float | None, checkpoint: float | None, text: str) -> None:
    assert str(Loss(high_water, checkpoint)) == text
