"""Which process and which GPU a rank is: by its pid, its variables and its own files in procfs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwarden.environment import in_kubernetes
from trainwarden.identity import local_rank, process_start_ticks
from trainwarden.training.gpu_memory import GpuDevice

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_SLURM_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class RankProcess:
    """The process of one rank; a field is None where it is unknown.

    Attributes:
        start: clock ticks since boot: together with the pid it identifies the process.
        namespace: number of its pid namespace, another one in most containers.
        gpu: number of its GPU on the host, as the driver counts them.
        uuid: of its GPU, as the driver writes it.
    """

    pid: int
    start: int | None = None
    namespace: int | None = None
    gpu: int | None = None
    uuid: str | None = None

    @classmethod
    def current(cls, environ: Mapping[str, str] = os.environ) -> RankProcess:
        """Return this process."""
        pid = os.getpid()
        gpu, uuid = gpu_of_rank(environ)
        return cls(pid, process_start_ticks(pid), _pid_namespace(), gpu, uuid)

    def using(self, device: GpuDevice, environ: Mapping[str, str] = os.environ) -> RankProcess:
        """Return the same with the GPU that is really in use."""
        gpu, uuid = gpu_of_rank(environ, device.number)
        return replace(self, gpu=gpu, uuid=device.uuid or uuid)


def gpu_of_rank(
    environ: Mapping[str, str], device: int | None = None, *, devices: str = "/dev"
) -> tuple[int | None, str | None]:
    """Return the number and the UUID of the GPU that a rank uses, by convention the visible one of its local rank.

    Each is None where it is unknown. A number that counts within a container, or within what SLURM lets a job see, is
    none of the host.

    Args:
        environ: variables of the process.
        device: number of the GPU among those that the process sees, where it is known.
        devices: where the files of devices are.
    """
    local = local_rank(environ) if device is None else device
    stated = next((environ[name] for name in _VISIBLE if name in environ), None)
    entries = [entry.strip() for entry in stated.split(",")] if stated is not None else []
    if stated is not None:
        place = 0 if device is None and len(entries) == 1 else local
        if place is None or place >= len(entries):
            return None, None
        entry = entries[place]
        if _UUID.fullmatch(entry):
            return None, entry
        if not _is_number(entry):
            return None, None
    else:
        if local is None or not _has_gpu(devices):
            return None, None
        place, entry = local, str(local)
    if "SLURM_JOB_ID" in environ:
        of_job = next((environ[name].split(",") for name in _SLURM_GPUS if environ.get(name)), [])
        is_known = place < len(of_job) and len(of_job) == (len(entries) or len(of_job)) and _is_number(of_job[place])
        return (int(of_job[place]) if is_known else None), None
    return (None if in_kubernetes(environ) else int(entry)), None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 4


def _has_gpu(devices: str) -> bool:
    return any(os.path.exists(f"{devices}/{name}") for name in ("nvidiactl", "kfd"))  # noqa: PTH110  # quick


def _pid_namespace() -> int | None:
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116  # quick
    except OSError:
        return None
