"""The judgement: budgets, lists, defaults, and what keeps the remediator from touching an attempt at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden_remediator.decide.decide import (
    AlertedFailure,
    Barred,
    Lost,
    Nothing,
    Refuse,
    Restart,
    StopAndPage,
    Wait,
    decide,
    label_problem,
    scheduler_objection,
    stale,
)
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import Objections
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import MODES, Action, Alert
from trainwarden_remediator.incidents.price import Loss
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import Records, SystemClock, World
from trainwarden_remediator.policies.policy import Policy, load_policy
from trainwarden_remediator.policies.policy_file import Backoff, Implementation

LABELS = {
    "alertname": "TrainRunFailed",
    "run_id": "run-1",
    "attempt": "3",
    "job_id": "17",
    "scheduler": "slurm",
    "failure_mode": "crash",
    "remediate": "true",
}
NAMES = ["oom", "hang", "nccl", "torch", "exception", "watchdog_timeout", "nccl_collective", "cancelled"]
START = 1_700_000_000.0
RUN = ReportedRun("run-1", 3, "slurm:17:2", state="failed", started=START)
JOB = ScheduledJob("17", "run-1", 2, JobState.FAILED, "FAILED")


def decided(failure: AlertedFailure, history: History, policy: Policy, now: float) -> Restart | StopAndPage | Nothing:
    decision = decide(failure, history, policy, now)
    assert not isinstance(decision, Wait)
    return decision


def alert(**labels: str | None) -> Alert:
    merged = {**LABELS, **labels}
    return Alert({name: value for name, value in merged.items() if value is not None}, START + 100)


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


@pytest.mark.parametrize(
    ("failure", "state", "refused"),
    [
        ("terminated", "FAILED", None),
        ("terminated", "NODE_FAIL", None),
        ("terminated", "TIMEOUT", "TIMEOUT, its time limit is used up"),
        ("terminated", "DEADLINE+TIMEOUT", "DEADLINE, its --deadline is reached, after which it cannot start again"),
        ("terminated", "COMPLETING+PREEMPTED", "PREEMPTED, other jobs took its place, and it is not requeued"),
        ("terminated", "REVOKED", "REVOKED, it runs in another cluster of its federation"),
        ("time_limit", "TIMEOUT", "TIMEOUT, its time limit is used up"),
        # Ranks that hung until the limit, and a failure of their own just before it.
        ("hang", "TIMEOUT", None),
        (None, "TIMEOUT", None),
    ],
)
def test_an_end_from_outside_is_a_failure_unless_the_scheduler_made_it(
    failure: str | None, state: str, refused: str | None
) -> None:
    job = replace(JOB, scheduler_state=state)
    verdict = scheduler_objection("run-1", 2, job, failure)
    assert verdict == (refused and Barred(f"the scheduler ended job 17 itself: {refused}"))


def test_a_cancelled_job_is_left_alone_whatever_the_record_states() -> None:
    for state, kind in ((JobState.CANCELLED, Refuse), (JobState.ENDING, Wait)):
        job = replace(JOB, state=state, scheduler_state="CANCELLED")
        assert isinstance(scheduler_objection("run-1", 2, job, "terminated"), kind)


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


@pytest.mark.parametrize(
    ("options", "failure", "restarts"),
    [
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
    ],
)
def test_error_type_subsystem_signal_and_default_decide_in_this_order(
    options: dict[str, object], failure: AlertedFailure, restarts: bool
) -> None:
    assert (decided(failure, History({}), selective(**options), 0).action is Action.RESTART) == restarts


@pytest.mark.parametrize(
    ("policy", "failure", "action"),
    [
        ("megatron_transient", AlertedFailure("crash", "communication"), Action.RESTART),
        ("megatron_transient", AlertedFailure("crash", "nccl_timeout"), Action.RESTART),
        ("megatron_transient", AlertedFailure("crash", "node_failure"), Action.RESTART),
        ("megatron_transient", AlertedFailure("crash", "unknown"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "oom"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "host_oom"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "exception"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "torch"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "numerical_instability"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "configuration"), Action.NONE),
        ("megatron_transient", AlertedFailure("crash", "model_creation"), Action.NONE),
        ("megatron_transient", AlertedFailure("stall", "hang"), Action.RESTART),
        ("megatron_transient", AlertedFailure("timeout", "hang"), Action.RESTART),
        ("megatron_conservative", AlertedFailure("crash", "nccl"), Action.NONE),
        ("megatron_conservative", AlertedFailure("crash", "nccl_timeout"), Action.RESTART),
        ("megatron_conservative", AlertedFailure("stall", "hang"), Action.RESTART),
        ("megatron_conservative", AlertedFailure("timeout", "hang"), Action.NONE),
        ("megatron_aggressive", AlertedFailure("crash", "numerical_instability"), Action.RESTART),
        ("megatron_aggressive", AlertedFailure("crash", "oom"), Action.NONE),
        ("default", AlertedFailure("crash", "oom"), Action.RESTART),
        *[("observe", AlertedFailure(mode, "hang"), Action.NONE) for mode in MODES],
        *[(name, AlertedFailure("success"), Action.NONE) for name in ("default", "megatron_aggressive")],
    ],
)
def test_the_shipped_policies_do_what_their_names_promise(policy: str, failure: AlertedFailure, action: Action) -> None:
    assert decided(failure, History({}), load_policy(policy), 0).action is action


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


@given(
    st.fixed_dictionaries(
        {}, optional={name: st.text(max_size=5) for name in ("run_id", "attempt", "failure_mode", "job_id")}
    )
)
def test_any_labels_at_all_are_either_an_address_or_refused(labels: dict[str, str]) -> None:
    about = Alert(labels, None)
    if label_problem(about) is None:
        assert about.run_id
        assert about.attempt is not None
        assert about.mode in MODES


@pytest.mark.parametrize(
    ("labels", "run", "expected"),
    [
        ({}, RUN, None),
        ({"job_id": None, "scheduler": None}, RUN, None),
        ({}, Unknown("down"), Wait),
        ({}, None, Wait),
        ({"attempt": "2"}, RUN, Refuse),
        ({"attempt": "4"}, RUN, Wait),
        ({"job_id": "18"}, RUN, Refuse),
        ({"scheduler": "local"}, RUN, Refuse),
        ({}, replace(RUN, attempt_key="nonsense"), Refuse),
        ({}, replace(RUN, started=START + 1000), Refuse),
        ({}, replace(RUN, started=None), None),
        ({}, replace(RUN, state="succeeded"), Refuse),
        ({}, replace(RUN, state="cancelled"), Refuse),
        ({}, replace(RUN, state="running"), Refuse),
        ({}, replace(RUN, state=None), Wait),
        ({"failure_mode": "stall"}, RUN, Refuse),
        ({"failure_mode": "stall"}, replace(RUN, state="running"), None),
        ({"failure_mode": "timeout"}, RUN, Refuse),
        ({"failure_mode": "timeout"}, replace(RUN, state="running"), None),
        # Two clusters may use one run id, and one of them may have no series at this moment.
        ({"cluster": "b"}, replace(RUN, cluster="a"), Refuse),
        ({"cluster": "a"}, replace(RUN, cluster="a"), None),
        ({"cluster": "b"}, RUN, None),
        ({}, replace(RUN, cluster="a"), None),
    ],
)
def test_an_alert_counts_only_for_the_attempt_that_is_the_present_one(
    labels: dict[str, str | None], run: ReportedRun | Unknown | None, expected: type | None
) -> None:
    """S3, and unknown is not failed."""
    verdict = stale(alert(**labels), run)
    assert verdict is None if expected is None else isinstance(verdict, expected)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (JOB, None),
        (replace(JOB, state=JobState.RUNNING), None),
        (Unknown("down"), Wait),
        (Absent(), Refuse),
        (replace(JOB, run_id=None), Refuse),
        (replace(JOB, run_id="run-2"), Refuse),
        (replace(JOB, generation=3), Refuse),
        (replace(JOB, generation=1), Wait),
        (replace(JOB, state=JobState.CANCELLED), Refuse),
        (replace(JOB, state=JobState.COMPLETED), Refuse),
        (replace(JOB, state=JobState.ENDING), Wait),
        (replace(JOB, state=JobState.WAITING), Refuse),
        (replace(JOB, state=JobState.HELD), Refuse),
        (replace(JOB, state=JobState.WITHDRAWN), Refuse),
        (Absent("CANCELLED"), Refuse),
        (Absent("PREEMPTED"), Refuse),
        (Absent("NODE_FAIL"), Lost),
        (replace(JOB, state=JobState.OTHER), Wait),
        (replace(JOB, refusal="not yours"), Refuse),
    ],
)
def test_only_this_start_of_a_job_that_is_ours_may_be_touched(reading: Reading, expected: type | None) -> None:
    """S4, and the job's own mark against forged records."""
    verdict = scheduler_objection("run-1", 2, reading)
    assert verdict is None if expected is None else isinstance(verdict, expected)


def test_a_run_of_a_scheduler_without_a_driver_is_left_alone_and_the_scheduler_is_named() -> None:
    run = replace(RUN, attempt_key="modal:ta-01JX:4711")

    class Runs:
        def runs(self, run_ids: Collection[str]) -> Mapping[str, ReportedRun]:
            return dict.fromkeys(run_ids, run)

    # A driver that is looked at in any way makes this fail.
    drivers = {"slurm": cast("Any", None)}
    world = World(SystemClock(), cast("Any", None), cast("Any", Runs()), drivers, Records(None))
    failed = alert(scheduler="modal", job_id="ta-01JX")
    assert Objections(world).against(failed) == (run, Barred("no driver for scheduler 'modal'"))


@pytest.mark.parametrize(
    ("failure", "expected"), [("terminated", Barred), ("time_limit", Barred), ("peer_reset", Lost), (None, Lost)]
)
def test_a_time_limit_is_no_failure_either_once_the_job_is_forgotten(failure: str | None, expected: type) -> None:
    assert type(scheduler_objection("run-1", 2, Absent("TIMEOUT"), failure)) is expected


@pytest.mark.parametrize(("failure", "expected"), [("terminated", Barred), ("peer_reset", Lost), (None, Barred)])
def test_without_accounting_the_record_of_a_job_that_is_forgotten_takes_a_page(
    failure: str | None, expected: type
) -> None:
    assert type(scheduler_objection("run-1", 2, Absent(), failure)) is expected


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
