"""The series of jobs and nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainwarden.clients.slurm.hostlist import expand_hostlist
from trainwarden.clients.slurm.jobs import ENDED_STATES, JOB_STATES
from trainwarden.clients.slurm.nodes import NODE_STATES
from trainwarden.redaction import label_text, name_text
from trainwarden_exporter.collectors.slurm import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden.clients.slurm.jobs import SlurmJob
    from trainwarden.clients.slurm.nodes import SlurmNode
    from trainwarden_exporter.core.metric import Families

NAME_BYTES = 64


def add_job(families: Families, job: SlurmJob, run_id: str) -> None:
    """Add one job that works for a run."""
    ids = {"run_id": run_id, "job_id": job.job_id}
    name, queue_id = label_text(job.name, NAME_BYTES), name_text(job.queue_id, NAME_BYTES)
    user, partition = name_text(job.user, NAME_BYTES), name_text(job.partition, NAME_BYTES)
    families.add(metrics.SLURM_JOB_INFO, 1, **ids, queue_id=queue_id, name=name, user=user, partition=partition)
    for state in JOB_STATES:
        families.add(metrics.SLURM_JOB_STATE, state == job.state, **ids, state=state)
    families.add(metrics.SLURM_JOB_RESTARTS, job.restarts, **ids)
    families.add(metrics.SLURM_JOB_HELD_BY_US, job.held_by_requeue, **ids)
    families.add(metrics.SLURM_JOB_NODES, job.nodes, **ids)
    families.add(metrics.SLURM_JOB_GPUS, job.gpus, **ids)
    families.add(metrics.SLURM_JOB_SUBMIT_TIMESTAMP_SECONDS, job.submitted, **ids)
    families.add(metrics.SLURM_JOB_START_TIMESTAMP_SECONDS, job.started, **ids)
    families.add(metrics.SLURM_JOB_DEADLINE_TIMESTAMP_SECONDS, job.deadline, **ids)
    reason = label_text(job.reason, NAME_BYTES)
    if job.state == "pending":
        families.add(metrics.SLURM_JOB_PENDING_INFO, 1, **ids, reason=reason)
    if job.state in ENDED_STATES:
        families.add(metrics.SLURM_JOB_END_INFO, 1, **ids, state=job.state, reason=reason)
        families.add(metrics.SLURM_JOB_END_TIMESTAMP_SECONDS, job.ended, **ids)
        families.add(metrics.SLURM_JOB_EXIT_CODE, job.exit_code, **ids)
        families.add(metrics.SLURM_JOB_EXIT_SIGNAL, job.exit_signal, **ids)


def add_job_nodes(families: Families, job: SlurmJob, limit: int) -> int:
    """Add the nodes that a job has, at most `limit`, and return how many were added.

    Raises:
        ValueError: SLURM's list of them cannot be read; what stands before the unreadable part is added.
    """
    added: set[str] = set()
    for name in expand_hostlist(job.node_list):
        if len(added) == limit:
            break
        node = name_text(name)
        if node not in added:
            added.add(node)
            families.add(metrics.SLURM_JOB_NODE_INFO, 1, job_id=job.job_id, node=node)
    return len(added)


def add_job_totals(families: Families, states: Iterable[str]) -> None:
    """Add how many jobs of the whole queue are in each state, given the state of each."""
    counts = Counter(states)
    for state in JOB_STATES:
        families.add(metrics.SLURM_JOBS, counts[state], state=state)


def add_node(families: Families, node: SlurmNode) -> None:
    """Add one node."""
    families.add(metrics.SLURM_NODE_STATE, 1, node=node.name, state=node.state)
    if node.reason:
        reason, user = label_text(node.reason, 120), name_text(node.user, NAME_BYTES)
        families.add(metrics.SLURM_NODE_DRAIN_INFO, 1, node=node.name, reason=reason, user=user)
    families.add(metrics.SLURM_NODE_DRAIN_SINCE_TIMESTAMP_SECONDS, node.since, node=node.name)
    if node.gpus:
        families.add(metrics.SLURM_NODE_GPUS, node.gpus, node=node.name)
        families.add(metrics.SLURM_NODE_GPUS_ALLOCATED, node.gpus_allocated, node=node.name)


def add_node_totals(families: Families, nodes: Iterable[SlurmNode]) -> None:
    """Add the nodes and GPUs of the whole cluster."""
    found = list(nodes)
    there = [node for node in found if node.state != "future"]
    counts = Counter(node.state for node in found)
    for state in NODE_STATES:
        families.add(metrics.SLURM_NODES, counts[state], state=state)
    families.add(metrics.SLURM_GPUS, sum(node.gpus for node in there))
    used = [node.gpus_allocated for node in there if node.gpus]
    # A sum over some of them would look like free GPUs.
    families.add(metrics.SLURM_GPUS_ALLOCATED, None if None in used else sum(count or 0 for count in used))
