"""The instances of a GPU that is divided: which there are, their memory, and how busy they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from trainwarden_exporter.collectors.gpu.nvml import mig_metrics
from trainwarden_exporter.collectors.gpu.nvml.codes import NOT_FOUND, failure_of
from trainwarden_exporter.collectors.gpu.nvml.values import counted, text
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.collectors.gpu.nvml.activity import Activity
    from trainwarden_exporter.core.metric import Families


class MigInstances:
    """Reads the instances of one GPU; needs no rights but to see them. For one thread.

    Args:
        calls: of the GPU.
        activity: returns what reads how busy a GPU instance is, given a name of the place and its number; None: no one.
    """

    def __init__(self, calls: DriverCalls, activity: Callable[[str, int], Activity] | None = None) -> None:
        self._calls = calls
        self._activity = activity
        self._activities: dict[str, Activity] = {}

    def add_to(self, families: Families, gpu: dict[str, str]) -> None:
        """Add whether the GPU is divided, and its instances; raises `GpuDown`."""
        mode = self._calls.call("nvmlDeviceGetMigMode")
        if mode is None:
            return
        families.add(mig_metrics.GPU_MIG_ENABLED, mode[0] == 1, **gpu)
        before, self._activities = self._activities, {}
        if mode[0] == 1:
            for instance in _instances(self._calls):
                self._add(families, instance, gpu, before)

    def _add(self, families: Families, handle: Any, gpu: dict[str, str], before: Mapping[str, Activity]) -> None:
        calls = self._calls
        uuid = calls.call_with(handle, "nvmlDeviceGetUUID")
        if not uuid:
            return
        labels = {**gpu, "mig_uuid": text(uuid)}
        name = text(calls.call_with(handle, "nvmlDeviceGetName") or "")
        instance = calls.call_with(handle, "nvmlDeviceGetGpuInstanceId")
        part = calls.call_with(handle, "nvmlDeviceGetComputeInstanceId")
        families.add(
            mig_metrics.GPU_MIG_INFO,
            1,
            **labels,
            profile=name.rpartition("MIG ")[2],
            gpu_instance="" if instance is None else str(instance),
            compute_instance="" if part is None else str(part),
        )
        info = calls.call_with(handle, "nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        info = info or calls.call_with(handle, "nvmlDeviceGetMemoryInfo")  # which counts the driver's own as used
        if info is not None and counted(info.total):
            families.add(mig_metrics.GPU_MIG_MEMORY_SIZE_BYTES, info.total, **labels)
            families.add(mig_metrics.GPU_MIG_MEMORY_USED_BYTES, counted(info.used), **labels)
        if self._activity is not None and instance is not None:
            # By its uuid: after a new division the numbers are another instance's, whose counters begin anew.
            activity = before.get(labels["mig_uuid"]) or self._activity(f"{instance}/{part}", instance)
            self._activities[labels["mig_uuid"]] = activity
            activity.add_to(families, labels)


def _instances(calls: DriverCalls) -> Iterator[Any]:
    for place in range(calls.call("nvmlDeviceGetMaxMigDeviceCount") or 0):
        enter("nvmlDeviceGetMigDeviceHandleByIndex")
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(calls.handle, place)
        except pynvml.NVMLError as error:
            if error.value != NOT_FOUND:  # else the place is free
                calls.fail(("nvmlDeviceGetMigDeviceHandleByIndex", (place,)), failure_of(error))
