"""The series of a Ray cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.ray import metrics
from trainwarden_exporter.collectors.ray.jobs import STATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.collectors.ray.jobs import Job
    from trainwarden_exporter.collectors.ray.resources import NodeGpus, Usage
    from trainwarden_exporter.core.metric import Families


def add_cluster(families: Families, version: str, session: str) -> None:
    """Add which Ray it is, and which life of its head."""
    families.add(metrics.RAY_CLUSTER_INFO, 1, ray_version=version, session=session)


def add_jobs(families: Families, jobs: Sequence[Job], dropped: int) -> None:
    """Add how many jobs there are."""
    states = Counter(job.state for job in jobs)
    for state in STATES:
        families.add(metrics.RAY_CLUSTER_JOBS, states[state], state=state)
    families.add(metrics.RAY_CLUSTER_JOBS_DROPPED, dropped)


def add_job(families: Families, job: Job) -> None:
    """Add one job."""
    families.add(metrics.RAY_CLUSTER_JOB_INFO, 1, **job.key, job_id=job.job_id, ray_error_type=job.error_type)
    if job.state:
        for state in STATES:
            families.add(metrics.RAY_CLUSTER_JOB_STATE, job.state == state, **job.key, state=state)
    families.add(metrics.RAY_CLUSTER_JOB_START_TIMESTAMP_SECONDS, job.start, **job.key)
    families.add(metrics.RAY_CLUSTER_JOB_END_TIMESTAMP_SECONDS, job.end, **job.key)
    families.add(metrics.RAY_CLUSTER_JOB_EXIT_CODE, job.exit_code, **job.key)


def add_usage(families: Families, usage: Usage, running: int) -> None:
    """Add what the cluster has and what of it is held; `running` jobs are."""
    families.add(metrics.RAY_CLUSTER_GPUS, usage.gpus.total)
    families.add(metrics.RAY_CLUSTER_GPUS_ALLOCATED, usage.gpus.used)
    families.add(metrics.RAY_CLUSTER_CPUS, usage.cpus.total)
    families.add(metrics.RAY_CLUSTER_CPUS_ALLOCATED, usage.cpus.used)
    families.add(metrics.RAY_CLUSTER_GPUS_RESERVED, usage.gpus.reserved)
    families.add(metrics.RAY_CLUSTER_GPUS_WANTED, usage.gpus_wanted)
    without = running if usage.gpus.total > 0 and usage.gpus.used == 0 else 0
    families.add(metrics.RAY_CLUSTER_RUNNING_JOBS_WITHOUT_GPU, without)


def add_nodes(families: Families, nodes: Mapping[str, int]) -> None:
    """Add how many nodes there are."""
    for state, count in nodes.items():
        families.add(metrics.RAY_CLUSTER_NODES, count, state=state)


def add_gpus(families: Families, nodes: Sequence[NodeGpus]) -> None:
    """Add how busy the GPUs are."""
    for node in nodes:
        for gpu, busy in node.busy.items():
            families.add(metrics.RAY_CLUSTER_NODE_GPU_UTILIZATION_RATIO, busy, node=node.node, gpu=gpu)
