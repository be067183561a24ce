"""One job of the queue, out of its record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.slurm.answer import gpus_of_gres, gpus_of_tres, moment, number, text, words

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK = "trainwarden:"
# In this order: what stands earlier outweighs what it decorates.
STATES = (
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
ENDED = frozenset(STATES[STATES.index("node_fail") : STATES.index("other")])
ALLOCATED = frozenset({"completing", "configuring", "suspended", "running"})
_SPOKEN = {
    **{state.upper(): state for state in STATES},
    "STAGE_OUT": "completing",
    "STOPPED": "suspended",
    "RESIZING": "running",
    "REQUEUED": "pending",
    "REQUEUE_HOLD": "pending",
    "REQUEUE_FED": "pending",
    "SPECIAL_EXIT": "pending",
    "REVOKED": "cancelled",
}
# What slurmctld says of a job after `scontrol requeuehold`; it says nothing of one that its user holds.
_REQUEUED_HELD = "job requeued in held state"


@dataclass(frozen=True)
class Job:
    """What slurmctld says of a job. Times are Unix seconds; None is what it does not say, or what is not yet so.

    Attributes:
        run_id: which run it works for; None where it does not say so.
        state: one of `STATES`.
        held_by_us: it waits between the requeue and the release that make up a restart.
        gpus: that are allocated now.
        deadline: when its time limit ends it; None unless it runs.
    """

    job_id: str
    run_id: str | None
    name: str
    user: str
    partition: str
    state: str
    reason: str
    restarts: int | None
    held_by_us: bool
    nodes: int | None
    gpus: int | None
    submitted: float | None
    started: float | None
    deadline: float | None
    ended: float | None
    exit_code: int | None
    exit_signal: int | None


def read_job(entry: Mapping[str, Any], name_filter: re.Pattern[str] | None) -> Job:
    """Read one record; raises `ValueError` if it is none, or claims a run id that cannot be one."""
    job_id = number(entry.get("job_id"))
    if not job_id:
        raise ValueError(f"the record of a job has the id {entry.get('job_id')!r}, expected a number")
    said = {_SPOKEN[word] for word in words(entry.get("job_state")) if word in _SPOKEN}
    state = min(said, key=STATES.index, default="other")
    code, signal = _exit(entry.get("exit_code")) if state in ENDED else (None, None)
    started = moment(entry.get("start_time"))
    end = moment(entry.get("end_time"))
    reason = text(entry.get("state_reason"))
    return Job(
        job_id=str(job_id),
        run_id=_run_id(entry, name_filter),
        name=text(entry.get("name")),
        user=text(entry.get("user_name")) or str(entry.get("user_id", "")),
        partition=text(entry.get("partition")),
        state=state,
        reason="" if reason == "None" else reason,
        restarts=number(entry.get("restart_cnt")),
        held_by_us=_held_by_us(entry, state),
        nodes=number(entry.get("node_count")),
        gpus=_gpus(entry) if state in ALLOCATED else None,
        submitted=moment(entry.get("submit_time")),
        # Of a job that waits, it is when the scheduler means to start it.
        started=None if state in {"pending", "other"} else started,
        deadline=end if state in {"running", "suspended"} else None,
        ended=end if state in ENDED else None,
        exit_code=code,
        exit_signal=signal,
    )


def _run_id(entry: Mapping[str, Any], name_filter: re.Pattern[str] | None) -> str | None:
    comment = entry.get("comment")
    found = {
        word.removeprefix(MARK)
        for word in re.split(r"[\s,;]+", text(comment.get("job") if isinstance(comment, dict) else comment))
        if word.startswith(MARK)
    }
    if not found and name_filter:
        match = name_filter.fullmatch(text(entry.get("name")))
        found = {match["run_id"]} if match and match["run_id"] else set()
    if not found:
        return None
    if len(found) > 1:
        raise ValueError(f"job {entry['job_id']!r} says that it works for several runs")
    try:
        return check_run_id(found.pop())
    except InvalidRunId as error:
        raise ValueError(f"job {entry['job_id']!r}: {error}") from error


def _held_by_us(entry: Mapping[str, Any], state: str) -> bool:
    held = bool(entry.get("hold")) or number(entry.get("priority")) == 0
    said = text(entry.get("state_description")).lower()
    return (
        held
        and state in {"pending", "completing"}
        and entry.get("state_reason") == "JobHeldUser"
        and (state == "completing" or said == _REQUEUED_HELD)
    )


def _gpus(entry: Mapping[str, Any]) -> int | None:
    total = gpus_of_tres(text(entry.get("tres_alloc_str")))
    detail = entry.get("gres_detail")
    if total is None and isinstance(detail, list) and detail:
        # One text for each node. Without slurmdbd this is the only place that names GPUs.
        total = sum(gpus_of_gres(text(node)) for node in detail)
    return total


def _exit(value: object) -> tuple[int | None, int | None]:
    """Return exit code and signal: of a wait status (22.05), or of {return_code, signal: {id}}."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal")
        found = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
        return number(value["return_code"]), number(found) or 0
    status = number(value)
    return (None, None) if status is None else (status >> 8 & 0xFF, status & 0x7F)
