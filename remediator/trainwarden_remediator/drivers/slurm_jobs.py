"""What a job of SLURM is to the remediator."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from trainwarden.clients.slurm.hostlist import expand_hostlist
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob, Shape
from trainwarden_remediator.drivers.slurm_marks import hold_of, submission_of
from trainwarden_remediator.incidents.incident import clean

_MINUTE = 60.0
_MAX_NODES = 10_000
ENDED_BADLY = frozenset({"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL"})
_WITHDRAWN = frozenset({"PREEMPTED", "DEADLINE", "REVOKED"})
_IN_BETWEEN = frozenset({"COMPLETING", "REQUEUED", "REQUEUE_FED", "STAGE_OUT", "SIGNALING"})
_LIVE = frozenset({"RUNNING", "CONFIGURING", "RESIZING"})
# Reasons of a job that waits which no other job's end takes away.
_NEVER = frozenset(
    (
        "AccountNotAllowed",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "PartitionDown",
        "PartitionInactive",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "ReqNodeNotAvail",
    )
)


def scheduled_job(found: SlurmJob, refusal: str | None, shape: Shape | None) -> ScheduledJob:
    """Return a job as drivers have it.

    Args:
        found: as SLURM has it.
        refusal: why it must not be touched at all.
        shape: how its start can be replaced, where that is not by a requeue.
    """
    # SLURM cuts the limit of a job down to its deadline, in minutes, and shows its end as that of any limit.
    at_deadline = found.must_end is not None and (found.ended or 0.0) + _MINUTE >= found.must_end
    if "TIMEOUT" in found.flags and at_deadline:
        found = replace(found, flags=found.flags | {"DEADLINE"})
    return ScheduledJob(
        job_id=found.job_id,
        run_id=found.run_id,
        generation=found.restarts or 0,
        state=job_state(found),
        scheduler_state=clean("+".join(sorted(found.flags)), 80),
        refusal=refusal,
        held_by_requeue=found.held_by_requeue,
        user=found.user_id,
        hold_of=hold_of(found),
        nodes=_nodes(found.node_list) or (),
        excluded_nodes=excluded_nodes(found),
        account=found.account,
        waits_for_jobs=found.reason in ("Dependency", "DependencyNeverSatisfied"),
        started=found.started,
        waits_because=clean(found.reason, 80) if found.state == "pending" else "",
        never_starts=found.state == "pending" and found.reason.partition(",")[0] in _NEVER,
        shape=shape,
        submission=submission_of(found),
    )


def excluded_nodes(job: SlurmJob) -> tuple[str, ...] | None:
    """Return the nodes that a job avoids; None where its list cannot be read."""
    return _nodes(job.excluded_nodes)


def _nodes(text: str) -> tuple[str, ...] | None:
    try:
        return tuple(islice(expand_hostlist(text), _MAX_NODES))
    except ValueError:
        return None


def job_state(job: SlurmJob) -> JobState:
    """Return the state that matters; a flag such as COMPLETING outweighs the state that it decorates."""
    if job.flags & _IN_BETWEEN:
        return JobState.ENDING
    if "CANCELLED" in job.flags:
        return JobState.CANCELLED
    if "COMPLETED" in job.flags:
        return JobState.COMPLETED
    if job.flags & _WITHDRAWN:
        return JobState.WITHDRAWN
    if job.flags & ENDED_BADLY:
        return JobState.FAILED
    if job.flags & {"PENDING", "REQUEUE_HOLD"}:
        return JobState.HELD if job.held else JobState.WAITING
    return JobState.RUNNING if job.flags & _LIVE else JobState.OTHER
