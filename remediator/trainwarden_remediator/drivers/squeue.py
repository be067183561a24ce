"""`squeue --json`, as SLURM writes it since 22.05: tolerant about form, strict about which job a line is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden_remediator.drivers.driver import Standing
from trainwarden_remediator.errors import Unreachable

_MARK = "trainwarden:"
_ENDED_BADLY = {"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL"}
_IN_BETWEEN = {"COMPLETING", "REQUEUED", "REQUEUE_FED", "STAGE_OUT", "SIGNALING"}
_LIVE = {"RUNNING", "CONFIGURING", "RESIZING"}


@dataclass(frozen=True)
class QueueJob:
    """One record. `target` names it, and it alone, to scontrol; None where no name does."""

    job_id: str
    target: str | None
    states: frozenset[str]
    restarts: int
    held: bool
    held_by_admin: bool
    user_id: int
    requeue: bool | None
    run_id: str | None
    heterogeneous: bool

    @property
    def standing(self) -> Standing:
        """The state that matters; a flag such as COMPLETING outweighs the state that it decorates."""
        if self.states & _IN_BETWEEN:
            return Standing.ENDING
        if "CANCELLED" in self.states:
            return Standing.CANCELLED
        if "COMPLETED" in self.states:
            return Standing.COMPLETED
        if self.states & _ENDED_BADLY:
            return Standing.FAILED
        if self.states & {"PENDING", "REQUEUE_HOLD"}:
            return Standing.HELD if self.held else Standing.WAITING
        return Standing.RUNNING if self.states & _LIVE else Standing.OTHER


def read_queue(answer: Any) -> dict[str, QueueJob]:
    """All jobs by id. Raises Unreachable where the answer is not a complete list of jobs."""
    if not isinstance(answer, dict) or not isinstance(answer.get("jobs"), list):
        message = "no list of jobs"
        raise Unreachable(message)
    if answer.get("errors"):
        message = f"errors: {answer['errors']!r}"
        raise Unreachable(message)
    try:
        jobs = [_job(entry) for entry in answer["jobs"]]
    except (KeyError, TypeError, AttributeError) as error:
        message = f"an unexpected job record: {error!r}"
        raise Unreachable(message) from None
    return {job.job_id: job for job in jobs}


def _job(entry: Mapping[str, Any]) -> QueueJob:
    job_id = _required(entry, "job_id")
    states = entry["job_state"]
    return QueueJob(
        job_id=str(job_id),
        target=_target(entry, job_id),
        states=frozenset([states] if isinstance(states, str) else map(str, states)),
        restarts=_required(entry, "restart_cnt"),
        held=_number(entry.get("priority")) == 0,
        held_by_admin=entry.get("state_reason") == "JobHeldAdmin",
        user_id=_required(entry, "user_id"),
        requeue=_flag(entry.get("requeue")),
        run_id=_marked_run(entry.get("comment")),
        heterogeneous=bool(_number(entry.get("het_job_id"))),
    )


def _target(entry: Mapping[str, Any], job_id: int) -> str | None:
    array = _number(entry.get("array_job_id"))
    if not array:
        return str(job_id)
    # The bare id of an array names every task of it.
    task = _number(entry.get("array_task_id"))
    return None if task is None else f"{array}_{task}"


def _marked_run(comment: object) -> str | None:
    """The run named by `trainwarden:<run_id>` in a comment, which may say other things too; None unless it is one."""
    text = comment.get("job", "") if isinstance(comment, dict) else comment
    words = re.split(r"[\s,;]+", text) if isinstance(text, str) else []
    marks = {word.removeprefix(_MARK) for word in words if word.startswith(_MARK)}
    return marks.pop() if len(marks) == 1 else None


def _required(entry: Mapping[str, Any], key: str) -> int:
    value = _number(entry[key])
    if value is None:
        raise KeyError(key)
    return value


def _number(value: object) -> int | None:
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    number = _number(value)
    return None if number is None else bool(number)
