"""One report on a training: GPUs, network, checkpoints and Ray's resources, with what is wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypedDict

from trainwarden.clients.kubernetes import PodExecError
from trainwarden.ray import checkpoints
from trainwarden.ray.checkpoints import CheckpointProgress
from trainwarden.ray.head import open_head
from trainwarden.ray.resources import check_gpu_utilization, efa_of, nccl_lines, verify_ray_resources
from trainwarden.service_log import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden.ray.resources import GpuUtilization

# Below this share of its time, in percent, a GPU does nothing for the training.
IDLE_PERCENT = 5.0
# A step may pause, for a checkpoint or between the phases of reinforcement learning: so often GPUs are read, this far
# apart, until all of them are busy.
SAMPLES, PAUSE_SECONDS = 3, 1.0
NO_LOGS = "unknown: name a pod, to read its logs"
_TRANSPORTS = {"ofi": "ofi", "socket": "socket (TCP fallback)", "unknown": "no NCCL logs yet"}


class GpuNode(TypedDict):
    """One GPU: of which pod, utilization in percent, memory in MiB."""

    pod: str
    util: float
    mem_used: int
    mem_total: int


class GpuHealth(TypedDict):
    """All GPUs; utilization in percent."""

    total_gpus: int
    avg_utilization: float
    per_node: list[GpuNode]


class EfaHealth(TypedDict):
    """The network of NCCL."""

    active: bool
    transport: str
    channels: str


class RayUsage(TypedDict):
    """What Ray has, and what is in use."""

    gpus_used: float
    gpus_available: float
    cpus_used: float
    cpus_available: float


class TrainingHealth(TypedDict):
    """The report. `issues` has a line for each thing that is wrong or cannot be read; `healthy` if there is none."""

    healthy: bool
    gpu: GpuHealth
    efa: EfaHealth
    checkpoints: CheckpointProgress
    ray: RayUsage
    issues: list[str]


def get_training_health(
    head_pod: str, checkpoint_dir: str, all_pods: Sequence[str] | None = None, namespace: str | None = "default"
) -> TrainingHealth:
    """Return the report on a training. It takes a few seconds, in which idle GPUs are looked at again.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        checkpoint_dir: folder with its checkpoints, in the pod, or `s3://…`.
        all_pods: the pods whose GPUs are read; the head alone if None.
        namespace: of the pods; kubectl's own if None.
    """
    issues: list[str] = []
    gpu = _gpus(list(all_pods or [head_pod]), namespace, issues)
    efa = _network(list(all_pods or [head_pod]), namespace, issues)
    progress: CheckpointProgress = {"latest_step": 0, "checkpoint_count": 0, "checkpoint_dir": checkpoint_dir}
    try:
        progress = checkpoints.progress(open_head(head_pod, namespace), checkpoint_dir)
    except PodExecError as error:
        issues.append(f"the checkpoints in {checkpoint_dir} cannot be read: {error}")
    found = verify_ray_resources(head_pod, namespace)
    if found["error"]:
        issues.append(f"the resources of Ray cannot be read: {found['error']}")
    elif found["warning"]:
        issues.append(found["warning"])
    elif found["gpus_available"] > 0 and found["gpus_used"] == 0:
        issues.append("Ray has GPUs, and none is allocated")
    usage: RayUsage = {
        "gpus_used": found["gpus_used"], "gpus_available": found["gpus_available"],
        "cpus_used": found["cpus_used"], "cpus_available": found["cpus_available"],
    }  # fmt: skip
    return {"healthy": not issues, "gpu": gpu, "efa": efa, "checkpoints": progress, "ray": usage, "issues": issues}


def print_training_health(report: TrainingHealth) -> None:
    """Print a report of `get_training_health`, in a few lines."""
    gpu, efa, progress, usage = report["gpu"], report["efa"], report["checkpoints"], report["ray"]
    lines = [
        f"training health: {'HEALTHY' if report['healthy'] else 'UNHEALTHY'}",
        f"  GPUs         {gpu['total_gpus']}, {gpu['avg_utilization']:.0f} % busy on average",
    ]
    for node in gpu["per_node"]:
        memory = f"  {node['mem_used']}/{node['mem_total']} MiB" if node["mem_total"] else ""
        lines.append(f"    {node['pod']:<40} {node['util']:3.0f} %{memory}")
    lines += [
        f"  EFA          {'active' if efa['active'] else 'not active'}: {efa['transport']} {efa['channels']}".rstrip(),
        f"  checkpoints  {progress['checkpoint_count']}, newest at step {progress['latest_step']}",
        f"  Ray          {usage['gpus_used']:g}/{usage['gpus_available']:g} GPUs in use",
        f"               {usage['cpus_used']:g}/{usage['cpus_available']:g} CPUs in use",
        *(f"  ! {issue}" for issue in report["issues"]),
    ]
    print("\n".join(map(escape_controls, lines)))


def _gpus(pods: list[str], namespace: str | None, issues: list[str]) -> GpuHealth:
    """Return the GPUs of all pods: of each its highest utilization in as many samples as it takes to see it work."""
    read: dict[str, GpuUtilization] = {}
    busiest: dict[str, list[float]] = {}
    for sample in range(SAMPLES):
        if sample:
            time.sleep(PAUSE_SECONDS)
        for pod in pods:
            found = read[pod] = check_gpu_utilization(pod, namespace)
            before = busiest.get(pod, [])
            now = found["gpu_utilizations"]
            busiest[pod] = [max(pair) for pair in zip(before, now, strict=True)] if len(before) == len(now) else now
        if all(each >= IDLE_PERCENT for values in busiest.values() for each in values):
            break
    nodes: list[GpuNode] = []
    for pod, found in read.items():
        if not found["healthy"]:
            issues.append(f"the GPUs of {pod} cannot be read: {found['error']}")
        memory = zip(found["memory_used"], found["memory_total"], strict=True)
        for util in busiest[pod]:
            used, total = next(memory, (0, 0))
            nodes.append({"pod": pod, "util": util, "mem_used": used, "mem_total": total})
    average = sum(node["util"] for node in nodes) / len(nodes) if nodes else 0.0
    if not nodes and not issues:
        issues.append("there is no GPU")
    if nodes and average < IDLE_PERCENT:
        issues.append(f"GPUs are busy for less than {IDLE_PERCENT:g} % of the time: the training may not work")
    elif idle := sorted({node["pod"] for node in nodes if node["util"] < IDLE_PERCENT}):
        issues.append(f"GPUs of {', '.join(idle)} are idle while others work")
    return {"total_gpus": len(nodes), "avg_utilization": average, "per_node": nodes}


def _network(pods: list[str], namespace: str | None, issues: list[str]) -> EfaHealth:
    """Return the network of the pod that has the slowest one. What is named by an address shows no logs."""
    heads = [head for head in (open_head(pod, namespace) for pod in pods) if head.pod is not None]
    if not heads:
        return {"active": False, "transport": NO_LOGS, "channels": ""}
    texts = [nccl_lines(head) for head in heads]
    known = [efa for lines, _ in texts if (efa := efa_of(lines))["transport"] != "unknown"]
    worst = next((each for each in known if not each["efa_active"]), known[0] if known else efa_of(""))
    if worst["transport"] == "socket":
        issues.append("EFA is not active: NCCL uses TCP sockets; set NCCL_NET=ofi")
    unread = ((head.name, why) for head, (_, why) in zip(heads, texts, strict=True) if why)
    issues += [f"the network of {name} cannot be read: {why}" for name, why in unread]
    channels = sum(lines.count(" via NET/") for lines, _ in texts)
    transport = "ofi (EFA)" if worst["efa_active"] else _TRANSPORTS.get(worst["transport"], worst["transport"])
    return {
        "active": worst["efa_active"],
        "transport": transport,
        "channels": f"{channels} channels" if channels else "",
    }
