"""The instances of a GPU that is divided: which there are, and their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.nvml.codes import NOT_FOUND, failure_of
from trainwarden_exporter.collectors.gpu.nvml.values import counted, text
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.core.metric import Families


def add_instances(families: Families, calls: DriverCalls, gpu: dict[str, str]) -> None:
    """Add whether the GPU is divided, and into what; raises `GpuDown`. Needs no rights but to see the instances."""
    mode = calls.call("nvmlDeviceGetMigMode")
    if mode is None:
        return
    families.add(metrics.GPU_MIG_ENABLED, mode[0] == 1, **gpu)
    if mode[0] == 1:
        for instance in _instances(calls):
            _add(families, calls, instance, gpu)


def _instances(calls: DriverCalls) -> Iterator[Any]:
    for place in range(calls.call("nvmlDeviceGetMaxMigDeviceCount") or 0):
        enter("nvmlDeviceGetMigDeviceHandleByIndex")
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(calls.handle, place)
        except pynvml.NVMLError as error:
            if error.value != NOT_FOUND:  # else the place is free
                calls.fail(("nvmlDeviceGetMigDeviceHandleByIndex", (place,)), failure_of(error))


def _add(families: Families, calls: DriverCalls, instance: Any, gpu: dict[str, str]) -> None:
    uuid = calls.call_with(instance, "nvmlDeviceGetUUID")
    if not uuid:
        return
    mig_uuid = text(uuid)
    name = text(calls.call_with(instance, "nvmlDeviceGetName") or "")
    numbers = [calls.call_with(instance, f"nvmlDeviceGet{kind}InstanceId") for kind in ("Gpu", "Compute")]
    gpu_instance, compute_instance = ("" if number is None else str(number) for number in numbers)
    families.add(
        metrics.GPU_MIG_INFO,
        1,
        **gpu,
        mig_uuid=mig_uuid,
        profile=name.rpartition("MIG ")[2],
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
    )
    info = calls.call_with(instance, "nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    info = info or calls.call_with(instance, "nvmlDeviceGetMemoryInfo")  # which counts the driver's own as used
    if info is not None and counted(info.total):
        families.add(metrics.GPU_MIG_MEMORY_SIZE_BYTES, info.total, **gpu, mig_uuid=mig_uuid)
        families.add(metrics.GPU_MIG_MEMORY_USED_BYTES, counted(info.used), **gpu, mig_uuid=mig_uuid)
