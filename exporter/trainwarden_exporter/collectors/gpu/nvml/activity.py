"""How busy the parts of one GPU, or of one instance, are, by NVML's GPM: Hopper and newer.

It compares two samples of counters.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml

from trainwarden_exporter.collectors.gpu.calls import FORGET_SECONDS
from trainwarden_exporter.collectors.gpu.nvml import activity_metrics, mig_metrics, values
from trainwarden_exporter.collectors.gpu.nvml.codes import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.core.metric import Families, Metric

Buffers = dict[str, tuple[Any, Any]]


class ActivityReading(NamedTuple):
    """A metric that is one of GPM's (NVML_GPM_METRIC_* in nvml.h)."""

    metric: Metric
    number: int
    value: Callable[[float], float | None]
    labels: Mapping[str, str] = {}


READINGS = (
    ActivityReading(activity_metrics.GPU_GRAPHICS_ACTIVE_RATIO, 1, values.ratio),
    ActivityReading(activity_metrics.GPU_SM_ACTIVE_RATIO, 2, values.ratio),
    ActivityReading(activity_metrics.GPU_SM_OCCUPANCY_RATIO, 3, values.ratio),
    ActivityReading(activity_metrics.GPU_TENSOR_ACTIVE_RATIO, 5, values.ratio),
    ActivityReading(activity_metrics.GPU_MEMORY_BANDWIDTH_RATIO, 10, values.ratio),
    ActivityReading(activity_metrics.GPU_PIPE_ACTIVE_RATIO, 4, values.ratio, {"pipe": "int"}),
    ActivityReading(activity_metrics.GPU_PIPE_ACTIVE_RATIO, 11, values.ratio, {"pipe": "fp64"}),
    ActivityReading(activity_metrics.GPU_PIPE_ACTIVE_RATIO, 12, values.ratio, {"pipe": "fp32"}),
    ActivityReading(activity_metrics.GPU_PIPE_ACTIVE_RATIO, 13, values.ratio, {"pipe": "fp16"}),
    ActivityReading(activity_metrics.GPU_PCIE_BYTES_PER_SECOND, 20, values.bytes_of_mib, {"direction": "tx"}),
    ActivityReading(activity_metrics.GPU_PCIE_BYTES_PER_SECOND, 21, values.bytes_of_mib, {"direction": "rx"}),
    ActivityReading(activity_metrics.GPU_NVLINK_BYTES_PER_SECOND, 61, values.bytes_of_mib, {"direction": "tx"}),
    ActivityReading(activity_metrics.GPU_NVLINK_BYTES_PER_SECOND, 60, values.bytes_of_mib, {"direction": "rx"}),
)
# Of these one works in every kernel that computes or moves data, and none in one that waits for its peers.
_UNITS = (5, 10, 11, 12, 13)
MIG_READINGS = (
    ActivityReading(mig_metrics.GPU_MIG_SM_ACTIVE_RATIO, 2, values.ratio),
    ActivityReading(mig_metrics.GPU_MIG_SM_OCCUPANCY_RATIO, 3, values.ratio),
    ActivityReading(mig_metrics.GPU_MIG_TENSOR_ACTIVE_RATIO, 5, values.ratio),
    ActivityReading(mig_metrics.GPU_MIG_MEMORY_BANDWIDTH_RATIO, 10, values.ratio),
)


class Activity:
    """Reads one GPU or instance, from the second sample on; for one thread.

    Args:
        calls: of the GPU.
        buffers: the library's for two samples of each place; a GPU may be opened many times. Added to.
        place: the GPU's address, and of an instance its numbers.
        instance: the number of the GPU instance; None for a whole GPU.
    """

    def __init__(self, calls: DriverCalls, buffers: Buffers, place: str, instance: int | None = None) -> None:
        self._calls = calls
        self._buffers = buffers
        self._place = place
        self._readings = READINGS if instance is None else MIG_READINGS
        self._sample = ("nvmlGpmSampleGet",) if instance is None else ("nvmlGpmMigSampleGet", instance)
        self._not_before = 0.0
        self._pair: tuple[Any, Any] | None = None  # the sample before, the buffer for the next
        self._has_before = False
        # Made once: it has room for every metric of GPM, 19 KB.
        self._wanted = pynvml.c_nvmlGpmMetricsGet_t()
        self._wanted.version, self._wanted.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(self._readings)
        for at, reading in enumerate(self._readings):
            self._wanted.metrics[at].metricId = reading.number

    def add_to(self, families: Families, labels: dict[str, str]) -> None:
        """Add the series of the time since the sample before; raises `GpuDown`."""
        if time.monotonic() < self._not_before:
            return
        if self._pair is None:
            self._pair = self._begun()
            if self._pair is None:
                self._not_before = time.monotonic() + FORGET_SECONDS
                return
        before, buffer = self._pair
        if self._calls.call(*self._sample, buffer) is None:
            self._has_before = False
            return
        if self._has_before:
            self._add(families, labels, before, buffer)
        self._pair, self._has_before = (buffer, before), True

    def _begun(self) -> tuple[Any, Any] | None:
        support = self._calls.call("nvmlGpmQueryDeviceSupport")
        if support is None or not support.isSupportedDevice:
            return None
        try:
            if self._place not in self._buffers:
                self._buffers[self._place] = (pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc())
            return self._buffers[self._place]
        except pynvml.NVMLError as error:
            self._calls.fail(("nvmlGpmSampleAlloc", ()), failure_of(error))
            return None

    def _add(self, families: Families, labels: dict[str, str], before: Any, after: Any) -> None:
        wanted = self._wanted
        wanted.sample1, wanted.sample2 = before, after
        if self._calls.call_with(wanted, "nvmlGpmMetricsGet") is None:
            return
        units = []
        for at, reading in enumerate(self._readings):
            found = wanted.metrics[at]
            if found.nvmlReturn != 0 or not math.isfinite(found.value):
                continue
            value = reading.value(found.value)
            families.add(reading.metric, value, **labels, **reading.labels)
            if self._readings is READINGS and reading.number in _UNITS and value is not None:
                units.append(value)
        if units:
            families.add(activity_metrics.GPU_UNITS_ACTIVE_RATIO, max(units), **labels)
