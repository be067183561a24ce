"""From jobs and nodes to samples."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.redaction import label_text
from trainwarden_exporter.slurm import jobs as of_jobs
from trainwarden_exporter.slurm import nodes as of_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.catalog import Families
    from trainwarden_exporter.slurm.jobs import Job
    from trainwarden_exporter.slurm.nodes import Node

NAME_BYTES = 64


def add_job(families: Families, job: Job) -> None:
    """Add one job that works for a run."""
    if job.run_id is None:
        return
    ids = {"run_id": job.run_id, "job_id": job.job_id}
    name, user, partition = (label_text(value, NAME_BYTES) for value in (job.name, job.user, job.partition))
    families.add("slurm_job_info", 1, **ids, name=name, user=user, partition=partition)
    for state in of_jobs.STATES:
        families.add("slurm_job_state", state == job.state, **ids, state=state)
    families.add("slurm_job_restarts", job.restarts, **ids)
    families.add("slurm_job_held_by_us", job.held_by_us, **ids)
    families.add("slurm_job_nodes", job.nodes, **ids)
    families.add("slurm_job_gpus", job.gpus, **ids)
    families.add("slurm_job_submit_timestamp_seconds", job.submitted, **ids)
    families.add("slurm_job_start_timestamp_seconds", job.started, **ids)
    families.add("slurm_job_deadline_timestamp_seconds", job.deadline, **ids)
    reason = label_text(job.reason, NAME_BYTES)
    if job.state == "pending":
        families.add("slurm_job_pending_info", 1, **ids, reason=reason)
    if job.state in of_jobs.ENDED:
        families.add("slurm_job_end_info", 1, **ids, state=job.state, reason=reason)
        families.add("slurm_job_end_timestamp_seconds", job.ended, **ids)
        families.add("slurm_job_exit_code", job.exit_code, **ids)
        families.add("slurm_job_exit_signal", job.exit_signal, **ids)


def add_job_totals(families: Families, jobs: Iterable[Job]) -> None:
    """Add how many jobs of the whole queue are in each state."""
    counts = Counter(job.state for job in jobs)
    for state in of_jobs.STATES:
        families.add("slurm_jobs", counts[state], state=state)


def add_node(families: Families, node: Node) -> None:
    """Add one node."""
    families.add("slurm_node_state", 1, node=node.name, state=node.state)
    if node.reason:
        reason, user = label_text(node.reason, 120), label_text(node.user, NAME_BYTES)
        families.add("slurm_node_drain_info", 1, node=node.name, reason=reason, user=user)
    families.add("slurm_node_drain_since_timestamp_seconds", node.since, node=node.name)
    if node.gpus:
        families.add("slurm_node_gpus", node.gpus, node=node.name)
        families.add("slurm_node_gpus_allocated", node.gpus_allocated, node=node.name)


def add_node_totals(families: Families, nodes: Iterable[Node]) -> None:
    """Add what the whole cluster has."""
    found = list(nodes)
    counts = Counter(node.state for node in found)
    for state in of_nodes.STATES:
        families.add("slurm_nodes", counts[state], state=state)
    families.add("slurm_gpus", sum(node.gpus for node in found))
    used = [node.gpus_allocated for node in found if node.gpus]
    # A sum over some of them would look like free GPUs.
    families.add("slurm_gpus_allocated", None if None in used else sum(count or 0 for count in used))
