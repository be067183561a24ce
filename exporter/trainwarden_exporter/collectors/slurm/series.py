"""From jobs and nodes to samples."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.slurm import jobs as of_jobs
from trainwarden_exporter.collectors.slurm import metrics
from trainwarden_exporter.collectors.slurm import nodes as of_nodes
from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.collectors.slurm.jobs import Job
    from trainwarden_exporter.collectors.slurm.nodes import Node
    from trainwarden_exporter.core.metric import Families

NAME_BYTES = 64


def add_job(families: Families, job: Job) -> None:
    """Add one job that works for a run."""
    if job.run_id is None:
        return
    ids = {"run_id": job.run_id, "job_id": job.job_id}
    name, user, partition = (label_text(value, NAME_BYTES) for value in (job.name, job.user, job.partition))
    families.add(metrics.SLURM_JOB_INFO, 1, **ids, name=name, user=user, partition=partition)
    for state in of_jobs.STATES:
        families.add(metrics.SLURM_JOB_STATE, state == job.state, **ids, state=state)
    families.add(metrics.SLURM_JOB_RESTARTS, job.restarts, **ids)
    families.add(metrics.SLURM_JOB_HELD_BY_US, job.held_by_us, **ids)
    families.add(metrics.SLURM_JOB_NODES, job.nodes, **ids)
    families.add(metrics.SLURM_JOB_GPUS, job.gpus, **ids)
    families.add(metrics.SLURM_JOB_SUBMIT_TIMESTAMP_SECONDS, job.submitted, **ids)
    families.add(metrics.SLURM_JOB_START_TIMESTAMP_SECONDS, job.started, **ids)
    families.add(metrics.SLURM_JOB_DEADLINE_TIMESTAMP_SECONDS, job.deadline, **ids)
    reason = label_text(job.reason, NAME_BYTES)
    if job.state == "pending":
        families.add(metrics.SLURM_JOB_PENDING_INFO, 1, **ids, reason=reason)
    if job.state in of_jobs.ENDED:
        families.add(metrics.SLURM_JOB_END_INFO, 1, **ids, state=job.state, reason=reason)
        families.add(metrics.SLURM_JOB_END_TIMESTAMP_SECONDS, job.ended, **ids)
        families.add(metrics.SLURM_JOB_EXIT_CODE, job.exit_code, **ids)
        families.add(metrics.SLURM_JOB_EXIT_SIGNAL, job.exit_signal, **ids)


def add_job_totals(families: Families, jobs: Iterable[Job]) -> None:
    """Add how many jobs of the whole queue are in each state."""
    counts = Counter(job.state for job in jobs)
    for state in of_jobs.STATES:
        families.add(metrics.SLURM_JOBS, counts[state], state=state)


def add_node(families: Families, node: Node) -> None:
    """Add one node."""
    families.add(metrics.SLURM_NODE_STATE, 1, node=node.name, state=node.state)
    if node.reason:
        reason, user = label_text(node.reason, 120), label_text(node.user, NAME_BYTES)
        families.add(metrics.SLURM_NODE_DRAIN_INFO, 1, node=node.name, reason=reason, user=user)
    families.add(metrics.SLURM_NODE_DRAIN_SINCE_TIMESTAMP_SECONDS, node.since, node=node.name)
    if node.gpus:
        families.add(metrics.SLURM_NODE_GPUS, node.gpus, node=node.name)
        families.add(metrics.SLURM_NODE_GPUS_ALLOCATED, node.gpus_allocated, node=node.name)


def add_node_totals(families: Families, nodes: Iterable[Node]) -> None:
    """Add what the whole cluster has."""
    found = list(nodes)
    counts = Counter(node.state for node in found)
    for state in of_nodes.STATES:
        families.add(metrics.SLURM_NODES, counts[state], state=state)
    families.add(metrics.SLURM_GPUS, sum(node.gpus for node in found))
    used = [node.gpus_allocated for node in found if node.gpus]
    # A sum over some of them would look like free GPUs.
    families.add(metrics.SLURM_GPUS_ALLOCATED, None if None in used else sum(count or 0 for count in used))
