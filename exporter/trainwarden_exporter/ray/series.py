"""The series of a Ray cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.ray.jobs import STATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.catalog import Families
    from trainwarden_exporter.ray.jobs import Job
    from trainwarden_exporter.ray.resources import NodeGpus, Usage


def add_cluster(families: Families, version: str, session: str) -> None:
    """Add which Ray it is, and which life of its head."""
    families.add("ray_cluster_info", 1, ray_version=version, session=session)


def add_jobs(families: Families, jobs: Sequence[Job], dropped: int) -> None:
    """Add how many jobs there are."""
    states = Counter(job.state for job in jobs)
    for state in STATES:
        families.add("ray_cluster_jobs", states[state], state=state)
    families.add("ray_cluster_jobs_dropped", dropped)


def add_job(families: Families, job: Job) -> None:
    """Add one job."""
    families.add("ray_cluster_job_info", 1, **job.key, job_id=job.job_id, ray_error_type=job.error_type)
    if job.state:
        for state in STATES:
            families.add("ray_cluster_job_state", job.state == state, **job.key, state=state)
    families.add("ray_cluster_job_start_timestamp_seconds", job.start, **job.key)
    families.add("ray_cluster_job_end_timestamp_seconds", job.end, **job.key)
    families.add("ray_cluster_job_exit_code", job.exit_code, **job.key)


def add_usage(families: Families, usage: Usage, running: int) -> None:
    """Add what the cluster has and what of it is held; `running` jobs are."""
    for name, amount in (("gpus", usage.gpus), ("cpus", usage.cpus)):
        families.add(f"ray_cluster_{name}", amount.total)
        families.add(f"ray_cluster_{name}_allocated", amount.used)
    families.add("ray_cluster_gpus_reserved", usage.gpus.reserved)
    families.add("ray_cluster_gpus_wanted", usage.gpus_wanted)
    without = running if usage.gpus.total > 0 and usage.gpus.used == 0 else 0
    families.add("ray_cluster_running_jobs_without_gpu", without)


def add_nodes(families: Families, nodes: Mapping[str, int]) -> None:
    """Add how many nodes there are."""
    for state, count in nodes.items():
        families.add("ray_cluster_nodes", count, state=state)


def add_gpus(families: Families, nodes: Sequence[NodeGpus]) -> None:
    """Add how busy the GPUs are."""
    for node in nodes:
        for gpu, busy in node.busy.items():
            families.add("ray_cluster_node_gpu_utilization_ratio", busy, node=node.node, gpu=gpu)
