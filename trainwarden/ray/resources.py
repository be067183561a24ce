"""What a cluster works with: its GPUs, what Ray has allocated, and the network that NCCL uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from trainwarden.clients.kubernetes import PodExecError
from trainwarden.clients.ray import GPUS_PATH, JOBS_PATH, RayError, read_document, read_gpus, read_jobs
from trainwarden.clients.ray_usage import STATUS_PATH, read_usage
from trainwarden.ray import jobs
from trainwarden.ray.head import open_head
from trainwarden.ray.log import log
from trainwarden.signals.nccl_lines import EFA, OFI, SOCKET, networks_of, slowest

if TYPE_CHECKING:
    from trainwarden.ray.head import RayHead

_GPUS = "--query-gpu=utilization.gpu,memory.used,memory.total"
_PROCESSES = "--query-compute-apps=pid,process_name,gpu_name,used_memory"
_CSV = "--format=csv,noheader"
_SECONDS = 30.0
_LINES = "NCCL INFO (NET/|Using network|Assigned NET plugin|.* via NET/)"
_MAX_LINES = 10
NO_GPU_IN_USE = "a job is running, and no GPU is allocated to it: Ray has GPUs, and 0 are in use"


class GpuProcess(TypedDict):
    """A process on a GPU, in the words of nvidia-smi."""

    pid: str
    name: str
    gpu: str
    memory: str


class GpuUtilization(TypedDict):
    """The GPUs of a pod: utilization in percent, memory in MiB; `error` is the reason where `healthy` is False."""

    gpu_count: int
    gpu_utilizations: list[float]
    memory_used: list[int]
    memory_total: list[int]
    processes: list[GpuProcess]
    avg_utilization: float
    healthy: bool
    error: str


class RayResources(TypedDict):
    """What Ray has, and what tasks and actors hold of it.

    `warning` is not empty where a job runs and none of the GPUs is in use; `error` is the reason where `healthy` is
    False.
    """

    gpus_available: float
    gpus_used: float
    cpus_available: float
    cpus_used: float
    healthy: bool
    warning: str
    error: str


class EfaUtilization(TypedDict):
    """The network of NCCL.

    `efa_active`: every process that states one uses EFA. `transport`: ofi, socket (TCP: also where only some processes
    use it), ib or unknown. `details`: the lines, or why there are none.
    """

    efa_active: bool
    transport: str
    details: str


def check_gpu_utilization(head_pod: str, namespace: str | None = "default") -> GpuUtilization:
    """Return what the GPUs of a pod do now; of the whole cluster, without memory, where an address is given.

    Args:
        head_pod: name of a pod, or `http://…` of the dashboard.
        namespace: of the pod; kubectl's own if None.
    """
    head = open_head(head_pod, namespace)
    found: GpuUtilization = {
        "gpu_count": 0, "gpu_utilizations": [], "memory_used": [], "memory_total": [], "processes": [],
        "avg_utilization": 0.0, "healthy": False, "error": "",
    }  # fmt: skip
    try:
        if head.pod is None:
            nodes = read_gpus(read_document(head.dashboard.get((GPUS_PATH,))[0]))
            found["gpu_utilizations"] = [100 * busy for node in nodes for busy in node.busy.values()]
        else:
            for line in head.run(["nvidia-smi", _GPUS, f"{_CSV},nounits"], seconds=_SECONDS).splitlines():
                utilization, used, total = (part.strip() for part in line.split(","))
                found["gpu_utilizations"].append(float(utilization))
                found["memory_used"].append(int(used))
                found["memory_total"].append(int(total))
            found["processes"] = _processes(head)
    except (PodExecError, RayError) as error:
        found["error"] = f"{error}: {error.stderr}" if error.stderr else str(error)
    except ValueError as error:
        # A GPU in MIG mode, or one that is lost, has no number: it is not 0 either.
        found["error"] = f"nvidia-smi: {error}"
    else:
        found["healthy"] = True
    busy = found["gpu_utilizations"]
    found["gpu_count"] = len(busy)
    found["avg_utilization"] = sum(busy) / len(busy) if busy else 0.0
    if found["error"]:
        log.warning("%s: the GPUs cannot be read: %s", head_pod, found["error"])
    return found


def _processes(head: RayHead) -> list[GpuProcess]:
    processes: list[GpuProcess] = []
    for line in head.run(["nvidia-smi", _PROCESSES, _CSV], seconds=_SECONDS).splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) >= 4:
            # The name of a process may have commas, the rest has none.
            processes.append({"pid": parts[0], "name": ", ".join(parts[1:-2]), "gpu": parts[-2], "memory": parts[-1]})
    return processes


def verify_ray_resources(head_pod: str, namespace: str | None = "default") -> RayResources:
    """Return how many GPUs and CPUs Ray has and how many are in use, and whether a job runs without any GPU.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        namespace: of the pod; kubectl's own if None.
    """
    found: RayResources = {
        "gpus_available": 0.0, "gpus_used": 0.0, "cpus_available": 0.0, "cpus_used": 0.0, "healthy": False,
        "warning": "", "error": "",
    }  # fmt: skip
    try:
        status, listed = open_head(head_pod, namespace).dashboard.get((STATUS_PATH, JOBS_PATH))
        usage = read_usage(read_document(status))
        running = any(job.state == "running" for job in read_jobs(read_document(listed)))
    except (RayError, ValueError) as error:
        found["error"] = str(error)
        log.warning("%s: the resources of Ray cannot be read: %s", head_pod, error)
        return found
    found["gpus_available"], found["gpus_used"] = usage.gpus.total, usage.gpus.used
    found["cpus_available"], found["cpus_used"] = usage.cpus.total, usage.cpus.used
    found["healthy"] = True
    if running and usage.gpus.total > 0 and usage.gpus.used == 0:
        found["warning"] = NO_GPU_IN_USE
        log.warning("%s: %s", head_pod, NO_GPU_IN_USE)
    return found


def check_efa_utilization(head_pod: str, namespace: str | None = "default") -> EfaUtilization:
    """Return whether NCCL uses EFA, or has fallen back to TCP, by what it prints with NCCL_DEBUG=INFO.

    Args:
        head_pod: name of the head pod, or of another, whose workers' logs are read.
        namespace: of the pod; kubectl's own if None.
    """
    text, problem = nccl_lines(open_head(head_pod, namespace))
    return {"efa_active": False, "transport": "unknown", "details": problem} if problem else efa_of(text)


def nccl_lines(head: RayHead) -> tuple[str, str]:
    """Return what NCCL prints of networks in the logs of a pod, and why that cannot be read, if so."""
    if head.pod is None:
        return "", "expected the name of a pod, to read its logs"
    logs = ("worker*.out", "worker*.err", "job-driver-*.log")
    argv = ["grep", "-rhaE", *(f"--include={each}" for each in logs), "-m1000", _LINES, jobs.SESSION_LOGS]
    try:
        return head.run(argv, seconds=_SECONDS), ""
    except PodExecError as error:
        # Status 1 without another message: no line matches.
        nothing = not error.stderr or "exit code 1" in error.stderr
        return "", "" if nothing else f"{error}: {error.stderr}"


def efa_of(text: str) -> EfaUtilization:
    """Return the network that lines of NCCL show."""
    networks = networks_of(text.encode())
    slow = slowest(networks)
    if slow is None:
        details = "no line of NCCL names its network: it has not begun, or NCCL_DEBUG is not INFO"
        return {"efa_active": False, "transport": "unknown", "details": details}
    transport = slow[0]
    shown = [line.strip() for line in text.splitlines() if line.strip()]
    if transport == SOCKET:
        shown.sort(key=lambda line: "socket" not in line.lower())
    return {
        "efa_active": transport == EFA,
        "transport": OFI if transport == EFA else transport,
        "details": "\n".join(shown[:_MAX_LINES]),
    }
