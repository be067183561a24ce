"""One job of `squeue --json`, in the layouts of SLURM 22.05 and newer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slurm.fields import (
    flag,
    gpus_of_gres,
    gpus_of_tres,
    number,
    small_number,
    state_flags,
    text,
    timestamp,
)
from trainwarden.identity import InvalidRunId, check_run_id

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_MARK = "trainwarden:"
# In this order: a state that stands earlier outweighs those that it decorates.
JOB_STATES = (
    "completing",
    "configuring",
    "suspended",
    "running",
    "pending",
    "node_fail",
    "preempted",
    "timeout",
    "out_of_memory",
    "boot_fail",
    "deadline",
    "failed",
    "cancelled",
    "completed",
    "other",
)
ALLOCATED_STATES = frozenset({"completing", "configuring", "suspended", "running"})
ENDED_STATES = frozenset(JOB_STATES[JOB_STATES.index("node_fail") : JOB_STATES.index("other")])
_STATE_OF_FLAG = {
    **{state.upper(): state for state in JOB_STATES},
    "STAGE_OUT": "completing",
    "STOPPED": "suspended",
    "RESIZING": "running",
    "REQUEUED": "pending",
    "REQUEUE_HOLD": "pending",
    "REQUEUE_FED": "pending",
    "SPECIAL_EXIT": "pending",
    "REVOKED": "cancelled",
}
# slurmctld's description of a job after `scontrol requeuehold`; a job that its user holds has none.
_REQUEUED_HELD = "job requeued in held state"
_BETWEEN_MARKS = re.compile(r"[\s,;]+")


class InvalidRunMark(ValueError):
    """A comment names several runs, or one by no run id."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One record of a job. A field is None where the record has none, or one of an unknown form.

    Attributes:
        job_id: SLURM_JOB_ID of the job or of the array task.
        queue_id: as squeue shows it: `4711_3` of an array's task, `4711_[4-9]` of those that wait together, `4711+1` of
            a part of a heterogeneous job.
        target: the name of this job alone for scontrol; None where the record stands for several array tasks.
        flags: its states and flags, in capitals; empty where their form is unknown.
        state: one of `JOB_STATES`.
        reason: why it waits or how it ended, as SLURM names it; empty for none.
        restarts: how often it was requeued; rises at the requeue, not at the next start.
        held: it does not start by itself.
        held_by_requeue: it is held, or will be, as `scontrol requeuehold` leaves it, not by a user or an administrator.
        requeue: False if it was submitted with --no-requeue.
        excluded_nodes: that it must not start on, as SLURM shortens them.
        comment: of its user, as it stands.
        run_id: the run that its comment marks it with.
        mark_problem: why the mark in its comment is none; empty if there is no problem.
        gpus: allocated now.
        submitted: when it was submitted or last requeued, Unix seconds.
        node_list: the nodes that it has, as SLURM shortens them; empty while it has none.
        started: when it last started; None while it waits.
        deadline: when its time limit ends it; None unless it runs.
        must_end: its `--deadline`, Unix seconds; None where it has none.
        needs_minutes: how long a start must be able to run, its `--time-min` or its limit; None where it has none.
        ended: when it ended, also while its processes are still being ended; None before.
        exit_code, exit_signal: of its batch script; None before its end.
    """

    job_id: str
    queue_id: str
    target: str | None
    flags: frozenset[str]
    state: str
    reason: str
    restarts: int | None
    held: bool
    held_by_admin: bool
    held_by_requeue: bool
    user_id: int | None
    user: str
    name: str
    partition: str
    account: str
    requeue: bool | None
    heterogeneous: bool
    excluded_nodes: str
    comment: str
    run_id: str | None
    mark_problem: str
    nodes: int | None
    node_list: str
    gpus: int | None
    submitted: float | None
    started: float | None
    deadline: float | None
    must_end: float | None
    needs_minutes: int | None
    ended: float | None
    exit_code: int | None
    exit_signal: int | None

    @property
    def end(self) -> str:
        """How it ended, one of `ENDED_STATES`, also while its processes are still being ended; empty before that."""
        return next((state for state in JOB_STATES if state in ENDED_STATES and state.upper() in self.flags), "")


def read_job(entry: Mapping[str, Any]) -> SlurmJob:
    """Read one record; raises `ValueError` if it does not name its job."""
    job_id = number(entry.get("job_id")) if isinstance(entry, dict) else None
    if not job_id:
        shown = entry.get("job_id") if isinstance(entry, dict) else entry
        raise ValueError(f"the record of a job has the id {shown!r:.80}, expected a number")
    flags = state_flags(entry.get("job_state"))
    state = min((_STATE_OF_FLAG[flag] for flag in flags & _STATE_OF_FLAG.keys()), key=JOB_STATES.index, default="other")
    reason, user_id = text(entry.get("state_reason")), number(entry.get("user_id"))
    held = number(entry.get("priority")) == 0 or flag(entry.get("hold")) is True
    try:
        run_id, problem = marked_run(entry.get("comment")), ""
    except InvalidRunMark as error:
        run_id, problem = None, str(error)
    # Of a job that waits, start_time is when the scheduler means to start it.
    started = None if state in {"pending", "other"} else timestamp(entry.get("start_time"))
    end = timestamp(entry.get("end_time"))
    exit_code, exit_signal = _exit(entry.get("exit_code")) if state in ENDED_STATES else (None, None)
    return SlurmJob(
        job_id=str(job_id),
        queue_id=_queue_id(entry, job_id),
        target=_target(entry, job_id),
        flags=flags,
        state=state,
        reason="" if reason == "None" else reason,
        restarts=small_number(entry.get("restart_cnt")),
        held=held,
        held_by_admin=held and reason == "JobHeldAdmin",
        held_by_requeue=held and reason == "JobHeldUser" and _requeued(state, text(entry.get("state_description"))),
        user_id=user_id,
        user=text(entry.get("user_name")) or ("" if user_id is None else str(user_id)),
        name=text(entry.get("name")),
        partition=text(entry.get("partition")),
        account=text(entry.get("account")),
        requeue=flag(entry.get("requeue")),
        heterogeneous=bool(number(entry.get("het_job_id"))),
        excluded_nodes=text(entry.get("excluded_nodes")),
        comment=_comment(entry.get("comment")),
        run_id=run_id,
        mark_problem=problem,
        nodes=number(entry.get("node_count")),
        node_list=text(entry.get("nodes")) if state in ALLOCATED_STATES else "",
        gpus=_gpus(entry) if state in ALLOCATED_STATES else None,
        submitted=timestamp(entry.get("submit_time")),
        started=started,
        deadline=end if state in {"running", "suspended"} else None,
        must_end=timestamp(entry.get("deadline")),
        needs_minutes=number(entry.get("time_minimum")) or number(entry.get("time_limit")),
        ended=end if state in ENDED_STATES or state == "completing" else None,
        exit_code=exit_code,
        exit_signal=exit_signal,
    )


def marked_run(comment: object) -> str | None:
    """Return the run id of the mark `trainwarden:<run_id>` in a comment that may hold other text; None without a mark.

    Args:
        comment: a text, or {job, administrator, system} as some versions print it; their user's comment is the first.

    Raises:
        InvalidRunMark: it names several runs, or one that cannot be a run id.
    """
    marks = {word.removeprefix(RUN_MARK) for word in comment_words(_comment(comment)) if word.startswith(RUN_MARK)}
    if len(marks) > 1:
        raise InvalidRunMark("the comment names several runs")
    try:
        return check_run_id(marks.pop()) if marks else None
    except InvalidRunId as error:
        raise InvalidRunMark(str(error)) from error


def comment_words(comment: str) -> list[str]:
    """Return the words of a comment, among which marks are."""
    return [word for word in _BETWEEN_MARKS.split(comment) if word]


def _comment(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("job")
    return value if isinstance(value, str) else ""


def _target(entry: Mapping[str, Any], job_id: int) -> str | None:
    array = number(entry.get("array_job_id"))
    if not array:
        return str(job_id)
    # The bare id of an array names every task of it.
    task = number(entry.get("array_task_id"))
    return None if task is None else f"{array}_{task}"


def _queue_id(entry: Mapping[str, Any], job_id: int) -> str:
    array, het = number(entry.get("array_job_id")), number(entry.get("het_job_id"))
    if array:
        task = number(entry.get("array_task_id"))
        return f"{array}_[{text(entry.get('array_task_string'))[:40]}]" if task is None else f"{array}_{task}"
    return f"{het}+{number(entry.get('het_job_offset')) or 0}" if het else str(job_id)


def _requeued(state: str, description: str) -> bool:
    return state == "completing" or (state == "pending" and description.lower() == _REQUEUED_HELD)


def _gpus(entry: Mapping[str, Any]) -> int | None:
    total = gpus_of_tres(text(entry.get("tres_alloc_str")))
    detail = entry.get("gres_detail")
    if total is None and isinstance(detail, list) and detail:
        # One text for each node. Without slurmdbd this is the only place that names GPUs.
        total = sum(gpus_of_gres(text(node)) for node in detail)
    return total


def _exit(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal: of a wait status (22.05), or of {return_code, signal: {id}}."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal")
        found = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
        return number(value["return_code"]), small_number(found) or 0
    status = number(value)
    return (None, None) if status is None else (status >> 8 & 0xFF, status & 0x7F)
