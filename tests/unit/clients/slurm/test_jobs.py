"""A record of squeue becomes a job, whichever version wrote it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import cases
from tests.unit.clients.slurm.commands import exit_24_05, job_22_05, job_24_05
from trainwarden.clients.slurm.fields import number
from trainwarden.clients.slurm.jobs import JOB_STATES, InvalidRunMark, marked_run, read_job

HELD: dict[str, Any] = {"job_state": "PENDING", "state_reason": "JobHeldUser", "priority": 0}


@pytest.mark.parametrize(("entry", "gpus"), [(job_22_05(7), 4), (job_24_05(7), 16)], ids=["22.05", "24.05"])
def test_a_running_job_of_both_layouts(entry: dict[str, Any], gpus: int) -> None:
    job = read_job(entry)
    assert (job.job_id, job.run_id, job.state, job.user, job.partition) == ("7", "run-7", "running", "alice", "main")
    assert (job.restarts, job.nodes, job.gpus, job.held_by_requeue) == (1, 2, gpus, False)
    assert (job.submitted, job.started, job.deadline) == (1795271880, 1795271886, 1795275486)
    assert (job.ended, job.exit_code, job.exit_signal) == (None, None, None)


@cases(
    ("entry", "state", "code", "signal"),
    [
        (job_22_05(job_state="FAILED", exit_code=3 << 8), "failed", 3, 0),
        (job_22_05(job_state="TIMEOUT", exit_code=15), "timeout", 0, 15),
        (job_24_05(job_state=["FAILED"], exit_code=exit_24_05("ERROR", 3)), "failed", 3, 0),
        (job_24_05(job_state=["NODE_FAIL"], exit_code=exit_24_05("SIGNALED", 0, 9)), "node_fail", 0, 9),
        (job_24_05(job_state=["PREEMPTED"], exit_code={"set": True, "number": 0}), "preempted", 0, 0),
        (job_24_05(job_state=["CANCELLED"], exit_code="?"), "cancelled", None, None),
    ],
)
def test_a_job_that_has_ended_states_how(entry: dict[str, Any], state: str, code: int, signal: int) -> None:
    job = read_job(entry)
    assert (job.state, job.exit_code, job.exit_signal) == (state, code, signal)
    assert job.ended == 1795275486
    assert (job.deadline, job.gpus) == (None, None)


@cases(
    ("said", "state"),
    [
        (["COMPLETING", "FAILED"], "completing"),
        (["PENDING", "REQUEUED"], "pending"),
        ("RUNNING+SIGNALING", "running"),
        ("RUNNING+COMPLETING", "completing"),
        ("running+completing", "completing"),
        ("REQUEUE_HOLD", "pending"),
        ("STOPPED", "suspended"),
        ("BRAND_NEW_STATE", "other"),
        (None, "other"),
        ([["RUNNING"], 7], "other"),
    ],
)
def test_flags_and_new_state_names_lead_to_one_state(said: object, state: str) -> None:
    assert state in JOB_STATES
    assert read_job(job_24_05(job_state=said)).state == state


@cases(
    ("entry", "ours"),
    [
        (job_22_05(**HELD, state_description="job requeued in held state"), True),
        (job_22_05(**{**HELD, "job_state": "COMPLETING"}), True),
        (job_24_05(**{**HELD, "hold": True}, state_description="Job requeued in held state"), True),
        (job_22_05(**HELD), False),  # a user's own hold
        (job_22_05(**{**HELD, "state_reason": "JobHeldAdmin"}, state_description="job requeued in held state"), False),
        (job_22_05(**{**HELD, "job_state": "CANCELLED"}, state_description="job requeued in held state"), False),
        (job_22_05(job_state="COMPLETING"), False),
    ],
)
def test_only_the_hold_of_a_requeue_is_ours(entry: dict[str, Any], ours: bool) -> None:
    assert read_job(entry).held_by_requeue is ours


def test_a_job_that_waits_has_not_started_though_slurm_states_when_it_means_to() -> None:
    job = read_job(job_22_05(job_state="PENDING", state_reason="Priority", gres_detail=[]))
    assert (job.started, job.deadline, job.ended, job.gpus) == (None, None, None, None)
    assert job.reason == "Priority"


@cases(
    "nothing",
    [
        0,
        None,
        "",
        -1,
        {"set": False, "infinite": False, "number": 1795271886},
        {"set": True, "infinite": True, "number": 1795271886},
        {"set": True, "infinite": False, "number": 4294967294},
    ],
)
def test_a_time_that_is_not_set_is_none(nothing: object) -> None:
    assert read_job(job_22_05(start_time=nothing, end_time=nothing)).started is None


@cases(
    ("comment", "run_id"),
    [
        ("trainwarden:a", "a"),
        ("please, keep;trainwarden:a.b-c", "a.b-c"),
        ("trainwarden:a, again trainwarden:a", "a"),
        ("trainwarden:a\nJobState=FAKE", "a"),
        ({"job": "trainwarden:a", "administrator": "", "system": ""}, "a"),
        ({"job": "", "administrator": "trainwarden:a"}, None),
        ("nottrainwarden:a", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_the_comment_names_the_run(comment: object, run_id: str | None) -> None:
    assert marked_run(comment) == run_id
    job = read_job(job_22_05(comment=comment))
    assert (job.run_id, job.mark_problem) == (run_id, "")


@cases("comment", ["trainwarden:../etc", "trainwarden:", "trainwarden:a trainwarden:b"])
def test_a_mark_that_names_no_single_run_is_none_and_has_a_reason(comment: str) -> None:
    with pytest.raises(InvalidRunMark):
        marked_run(comment)
    job = read_job(job_22_05(comment=comment))
    assert job.run_id is None
    assert job.mark_problem


@cases(
    ("unset", "value"),
    [
        (None, 0),
        (-1, 0),
        (4294967294, 4294967279),
        (18446744073709551614, 1),
        ({"set": False, "infinite": False, "number": 3}, {"set": True, "infinite": False, "number": 3}),
        ({"set": True, "infinite": True, "number": 3}, {"number": 3}),
        ("3", True),
        (3.0, 3),
    ],
)
def test_unset_numbers_are_none_in_every_layout(unset: object, value: object) -> None:
    assert number(unset) is None
    assert (number(value) is None) is (value is True)


@pytest.mark.parametrize("layout", [job_22_05, job_24_05])
def test_one_name_for_scontrol_or_none(layout: Any) -> None:
    assert read_job(layout(7)).target == "7"
    assert read_job(layout(7, array_job_id=5, array_task_id=0)).target == "5_0"
    several = read_job(layout(5, array_job_id=5, array_task_id=None, array_task_string="1-9"))
    assert several.target is None


@cases("job_id", [None, 0, "12", True, {"set": False}])
def test_a_record_without_an_id_is_an_error(job_id: Any) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        read_job(job_22_05(job_id=job_id))


@cases(
    ("tres", "detail", "gpus"),
    [
        ("cpu=1,gres/gpu=4", ["gpu:2(IDX:0-1)"], 4),
        ("cpu=1", ["gpu:h100:2(IDX:0,3),gpu:a100:1(IDX:4)", "shard:3"], 3),
        ("cpu=1,gres/gpumem=80G", ["gpu:1g.10gb:2(IDX:0-1)"], 2),
        ("cpu=1", [], None),  # SLURM shows details to some users alone
        ("", None, None),
    ],
)
def test_gpus_are_counted_where_slurm_names_them(tres: str, detail: Any, gpus: int | None) -> None:
    assert read_job(job_22_05(tres_alloc_str=tres, gres_detail=detail)).gpus == gpus


@cases("value", [65534, 65535, 0xFFFFFFFE, 0xFFFFFFFF, 2**64 - 2, -2, 4294967294.0])
def test_what_slurm_has_no_value_for_is_none(value: float) -> None:
    job = read_job(job_24_05(restart_cnt=value, node_count=None))
    assert job.restarts is None
    if value > 65535 or value < 0:
        assert read_job(job_24_05(node_count=value)).nodes is None
        assert read_job(job_24_05(end_time={"set": True, "infinite": False, "number": value})).deadline is None


def test_gpus_without_a_value_are_none() -> None:
    assert read_job(job_24_05(tres_alloc_str="cpu=1,gres/gpu=18446744073709551614", gres_detail=[])).gpus is None
    assert read_job(job_22_05(tres_alloc_str="", gres_detail=["gpu:18446744073709551614"])).gpus == 0


@cases(
    ("changes", "queue_id"),
    [
        ({}, "4714"),
        ({"array_job_id": 4711, "array_task_id": 3}, "4711_3"),
        ({"array_job_id": 4711, "array_task_id": 0}, "4711_0"),
        ({"array_job_id": 4711, "array_task_id": None, "array_task_string": "4-9%2"}, "4711_[4-9%2]"),
        ({"array_job_id": 4711, "array_task_id": {"set": False, "infinite": False, "number": 0}}, "4711_[]"),
        ({"het_job_id": 4711, "het_job_offset": 1}, "4711+1"),
        ({"het_job_id": {"set": True, "number": 4711}, "het_job_offset": {"set": True, "number": 0}}, "4711+0"),
    ],
)
def test_a_job_has_the_id_that_squeue_shows_beside_its_own(changes: dict[str, Any], queue_id: str) -> None:
    job = read_job(job_22_05(4714, **changes))
    assert (job.job_id, job.queue_id) == ("4714", queue_id)


@cases(
    ("mark", "fields", "run_id"),
    [
        ("%x-%j", {}, "train-1"),
        ("%u.%x", {"name": "llama 3/70b"}, "alice.llama-3-70b"),
        ("sweep_%a", {"array_job_id": 7, "array_task_id": 3}, "sweep_3"),
        ("%x-%A_%a", {}, "train-1"),
        ("sweep_%a", {"array_job_id": 7, "array_task_string": "3-9"}, None),
    ],
)
def test_a_mark_may_name_its_run_by_the_job(mark: str, fields: dict[str, Any], run_id: str | None) -> None:
    job = read_job(job_22_05(comment=f"trainwarden:{mark}", **fields))
    assert (job.run_id, job.mark_problem) == (run_id, "")


def test_a_mark_with_an_unknown_token_is_a_problem() -> None:
    assert "expected one of %j" in read_job(job_22_05(comment="trainwarden:%q")).mark_problem
