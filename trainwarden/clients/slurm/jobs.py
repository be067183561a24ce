"""One job of `squeue --json`, in the layouts of SLURM 22.05 and newer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

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

RUN_MARK = "trainwarden:"
# An incident of the remediator, which ends a start of the job, and the restart count of that start.
HOLD_MARK = "trainwarden-hold:"
MAX_COMMENT_BYTES = 1024  # of SLURM
_PATH_MAX = 4096  # of Linux
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
# In a mark, as sbatch has them in file names: what a job_submit plugin cannot name yet, or what differs between tasks.
_TOKEN = re.compile(r"%([A-Za-z%])")
_NO_RUN_ID = re.compile(r"[^A-Za-z0-9_-]+")
_NO_NAMES: Mapping[str, str | None] = MappingProxyType({})


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
        array_job_id, array_task_id: of an array's task; empty of another job, and the latter where it is of several.
        batch_host: the node that its batch script runs on; empty while it has none.
        dependency: the conditions that it waits for, as SLURM shows them: `afterok:17(unfulfilled),singleton`.
        invalid_dependency_cancels: SLURM cancels it once `dependency` cannot be fulfilled any more; None where that is
            as the cluster is configured.
        work_dir, stdout, stderr: as `output_paths` reads them; empty where the record has none.
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
    array_job_id: str = ""
    array_task_id: str = ""
    batch_host: str = ""
    dependency: str = ""
    invalid_dependency_cancels: bool | None = None
    work_dir: str = ""
    stdout: str = ""
    stderr: str = ""

    @property
    def attempt_key(self) -> str:
        """The key of its present start."""
        return f"slurm:{self.job_id}:{self.restarts or 0}"

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
    array, task = number(entry.get("array_job_id")), number(entry.get("array_task_id"))
    user, name = text(entry.get("user_name")) or ("" if user_id is None else str(user_id)), text(entry.get("name"))
    names = job_names(str(job_id), str(array or ""), None if task is None else str(task), name, user)
    try:
        run_id, problem = marked_run(entry.get("comment"), names), ""
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
        user=user,
        name=name,
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
        array_job_id=str(array) if array else "",
        array_task_id=str(task) if array and task is not None else "",
        batch_host=text(entry.get("batch_host")),
        dependency=text(entry.get("dependency")),
        invalid_dependency_cancels=_invalid_dependency_cancels(entry.get("flags")),
        work_dir=_path(entry.get("current_working_directory")),
        # Newer versions have both: the name as it was given, and as it is used.
        stdout=_path(entry.get("stdout_expanded")) or _path(entry.get("standard_output")),
        stderr=_path(entry.get("stderr_expanded")) or _path(entry.get("standard_error")),
    )


def _invalid_dependency_cancels(flags: object) -> bool | None:
    """Read --kill-on-invalid-dep from the flags of a record; newer versions write the name out."""
    for each in flags if isinstance(flags, list) else ():
        if str(each).startswith("KILL_INV"):
            return True
        if str(each).startswith("NO_KILL_INV"):
            return False
    return None


def job_names(job_id: str, array: str, task: str | None, name: str, user: str) -> dict[str, str | None]:
    """Return what the tokens of a mark stand for; None of what is not known yet.

    Args:
        job_id: of the job, or of the array's task.
        array: of the array; empty for a job that is none's task.
        task: its number; None where a record stands for several tasks.
        name: of the job.
        user: its name.
    """
    return {"j": job_id, "A": array or job_id, "a": task if array else "", "x": name, "u": user}


def marked_run(comment: object, names: Mapping[str, str | None] = _NO_NAMES) -> str | None:
    """Return the run id of the mark `trainwarden:<run_id>` in a comment that may hold other text; None without a mark.

    Args:
        comment: a text, or {job, administrator, system} as some versions print it; their user's comment is the first.
        names: what `%j`, `%A`, `%a`, `%x` and `%u` in the mark stand for; None where one is not known yet.

    Raises:
        InvalidRunMark: it names several runs, or one that cannot be a run id.
    """
    marks = {word.removeprefix(RUN_MARK) for word in comment_words(_comment(comment)) if word.startswith(RUN_MARK)}
    if len(marks) > 1:
        raise InvalidRunMark("the comment names several runs")
    if not marks:
        return None
    try:
        return expanded_run_id(marks.pop(), names)
    except InvalidRunId as error:
        raise InvalidRunMark(str(error)) from error


def expanded_run_id(template: str, names: Mapping[str, str | None]) -> str | None:
    """Return a run id with the tokens of `names` in place; None where one of them is not known yet.

    What no run id may have becomes a dash, as in a job's name.

    Raises:
        InvalidRunId: the rest of the text cannot name a run, or it has another token.
    """
    used = _TOKEN.findall(template)
    if not used:
        return check_run_id(template)
    if unknown := [name for name in used if name not in names]:
        raise InvalidRunId(
            f"%{unknown[0]} in {template[:80]!r}, expected one of {', '.join(f'%{name}' for name in names)}"
        )
    values = {name: value for name, value in names.items() if value is not None}
    if not values.keys() >= set(used):
        return None
    found = _TOKEN.sub(lambda match: _NO_RUN_ID.sub("-", values[match[1]]), template)
    # `%x_%a` of a job that is no array's task; a name of dashes alone.
    return check_run_id(found.strip("._-")[:128])


def comment_words(comment: str) -> list[str]:
    """Return the words of a comment, among which marks are."""
    return [word for word in _BETWEEN_MARKS.split(comment) if word]


def _path(value: object) -> str:
    """Return a path, of one that is too long to be opened as much as shows it: those of a whole queue are in memory."""
    return text(value)[:_PATH_MAX]


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
