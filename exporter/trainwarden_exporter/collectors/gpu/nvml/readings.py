"""The readings of one NVIDIA GPU: utilization, memory, temperature, power, clocks, throttling, ECC, PCIe, fabric.

A reading that is one call or one field of NVML is a row of a table: metric, call or field, unit, further labels.
"""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from trainwarden_exporter.collectors.gpu import link_metrics, metrics
from trainwarden_exporter.collectors.gpu.nvml import values
from trainwarden_exporter.collectors.gpu.nvml.fabric import Fabric
from trainwarden_exporter.collectors.gpu.nvml.fields import ALL_LINKS, FieldValues
from trainwarden_exporter.collectors.gpu.nvml.mig import MigInstances
from trainwarden_exporter.collectors.gpu.nvml.nvlink import NvLinks
from trainwarden_exporter.collectors.gpu.state import GpuReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.collectors.gpu.nvml.activity import Activity
    from trainwarden_exporter.collectors.gpu.nvml.fields import FieldKey
    from trainwarden_exporter.core.metric import Families, Metric


class CallReading(NamedTuple):
    """A metric that one call of NVML returns."""

    metric: Metric
    function: str
    value: Callable[[float | None], float | None]
    labels: Mapping[str, str] = {}
    arguments: tuple[int, ...] = ()


class FieldReading(NamedTuple):
    """A metric that is one field of NVML."""

    metric: Metric
    field: FieldKey
    value: Callable[[float | None], float | None]
    labels: Mapping[str, str] = {}


FAST_CALLS = (
    CallReading(metrics.GPU_POWER_WATTS, "nvmlDeviceGetPowerUsage", values.watts),
    CallReading(metrics.GPU_POWER_LIMIT_WATTS, "nvmlDeviceGetEnforcedPowerLimit", values.watts),
    CallReading(metrics.GPU_ENERGY_JOULES_TOTAL, "nvmlDeviceGetTotalEnergyConsumption", values.joules),
    CallReading(
        metrics.GPU_TEMPERATURE_CELSIUS,
        "nvmlDeviceGetTemperature",
        values.celsius,
        {"sensor": "gpu"},
        (pynvml.NVML_TEMPERATURE_GPU,),
    ),
    CallReading(metrics.GPU_TEMPERATURE_MARGIN_CELSIUS, "nvmlDeviceGetMarginTemperature", values.margin),
    CallReading(metrics.GPU_CLOCK_HERTZ, "nvmlDeviceGetClockInfo", values.hertz, {"domain": "graphics"}, (0,)),
    CallReading(metrics.GPU_CLOCK_HERTZ, "nvmlDeviceGetClockInfo", values.hertz, {"domain": "sm"}, (1,)),
    CallReading(metrics.GPU_CLOCK_HERTZ, "nvmlDeviceGetClockInfo", values.hertz, {"domain": "memory"}, (2,)),
    CallReading(metrics.GPU_CLOCK_HERTZ, "nvmlDeviceGetClockInfo", values.hertz, {"domain": "video"}, (3,)),
)
FAST_FIELDS = (
    FieldReading(metrics.GPU_TEMPERATURE_CELSIUS, (82, 0), values.celsius, {"sensor": "memory"}),
    FieldReading(metrics.GPU_THROTTLE_SECONDS_TOTAL, (74, 0), values.seconds, {"reason": "sw_power_cap"}),
    FieldReading(metrics.GPU_THROTTLE_SECONDS_TOTAL, (76, 0), values.seconds, {"reason": "sync_boost"}),
    FieldReading(metrics.GPU_THROTTLE_SECONDS_TOTAL, (269, 0), values.seconds, {"reason": "sw_thermal"}),
    FieldReading(metrics.GPU_THROTTLE_SECONDS_TOTAL, (270, 0), values.seconds, {"reason": "hw_thermal"}),
    FieldReading(metrics.GPU_THROTTLE_SECONDS_TOTAL, (271, 0), values.seconds, {"reason": "hw_power_brake"}),
    FieldReading(link_metrics.GPU_NVLINK_TX_BYTES_TOTAL, (138, ALL_LINKS), values.bytes_of_kib),
    FieldReading(link_metrics.GPU_NVLINK_RX_BYTES_TOTAL, (139, ALL_LINKS), values.bytes_of_kib),
)
SLOW_CALLS = (
    CallReading(metrics.GPU_PCIE_REPLAYS_TOTAL, "nvmlDeviceGetPcieReplayCounter", values.counted),
    CallReading(metrics.GPU_PCIE_LINK_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth", values.lanes),
    CallReading(metrics.GPU_PCIE_LINK_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration", values.generation),
)
# Two metrics for ECC, not two values of a label: the lifetime's count holds the other, and their sum means nothing.
SLOW_FIELDS = (
    FieldReading(metrics.GPU_ECC_ERRORS_TOTAL, (3, 0), values.counted, {"kind": "corrected"}),
    FieldReading(metrics.GPU_ECC_ERRORS_TOTAL, (4, 0), values.counted, {"kind": "uncorrected"}),
    FieldReading(metrics.GPU_ECC_LIFETIME_ERRORS_TOTAL, (5, 0), values.counted, {"kind": "corrected"}),
    FieldReading(metrics.GPU_ECC_LIFETIME_ERRORS_TOTAL, (6, 0), values.counted, {"kind": "uncorrected"}),
    FieldReading(metrics.GPU_RECOVERY_ACTION, (230, 0), values.action),
    FieldReading(metrics.GPU_PCIE_TX_BYTES_TOTAL, (197, 0), values.counted),
    FieldReading(metrics.GPU_PCIE_RX_BYTES_TOTAL, (198, 0), values.counted),
)
# Bits of nvmlClocksEventReasons.
THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
# The second is the name before driver 535.
_REASON_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_SRAM_STATUS = getattr(pynvml, "c_nvmlEccSramErrorStatus_v1_t", None)  # old versions of pynvml lack it


class _Tier:
    """Reads the rows of two tables; for one thread."""

    def __init__(
        self, calls: DriverCalls, call_rows: Sequence[CallReading], field_rows: Sequence[FieldReading]
    ) -> None:
        self._calls = calls
        self._call_rows, self._field_rows = call_rows, field_rows
        self._fields = FieldValues(calls, [row.field for row in field_rows])

    @property
    def answered(self) -> int:
        """Number of calls that returned a value so far."""
        return self._calls.answered

    @property
    def last_error(self) -> str:
        """Error of the last call that failed."""
        return self._calls.last_error

    def _add_rows(self, families: Families, gpu: dict[str, str]) -> dict[Metric, float]:
        """Add the series of the tables, and return the highest value of each metric."""
        highest: dict[Metric, float] = {}
        fields = self._fields.read()
        call = self._calls.call
        read = [(row.metric, row.value(call(row.function, *row.arguments)), row.labels) for row in self._call_rows]
        read += [(row.metric, row.value(fields.get(row.field)), row.labels) for row in self._field_rows]
        for metric, value, labels in read:
            if value is not None:
                families.add(metric, value, **gpu, **labels)
                highest[metric] = max(value, highest.get(metric, value))
        return highest


class NvmlFastTier(_Tier):
    """Reads of one GPU what changes from second to second and costs the driver little; for one thread."""

    def __init__(self, calls: DriverCalls, activity: Activity | None = None) -> None:
        super().__init__(calls, FAST_CALLS, FAST_FIELDS)
        self._activity = activity

    def read(self, families: Families, gpu: dict[str, str]) -> GpuReading:
        """Add the series of one sample; raises `GpuDown`."""
        highest = self._add_rows(families, gpu)
        self._add_throttling(families, gpu)
        utilization = self._add_utilization(families, gpu)
        used = self._add_memory(families, gpu)
        if self._activity is not None:
            self._activity.add_to(families, gpu)
        power, temperature = metrics.GPU_POWER_WATTS, metrics.GPU_TEMPERATURE_CELSIUS
        return GpuReading(utilization, highest.get(power), highest.get(temperature), used)

    def _add_utilization(self, families: Families, gpu: dict[str, str]) -> float | None:
        rates = self._calls.call("nvmlDeviceGetUtilizationRates")
        if rates is None:
            return None
        busy = values.ratio(rates.gpu)
        families.add(metrics.GPU_UTILIZATION_RATIO, busy, **gpu)
        families.add(metrics.GPU_MEMORY_BUSY_RATIO, values.ratio(rates.memory), **gpu)
        return busy

    def _add_throttling(self, families: Families, gpu: dict[str, str]) -> None:
        reasons = next((mask for name in _REASON_CALLS if (mask := self._calls.call(name)) is not None), None)
        if reasons is not None:
            for bit, reason in THROTTLE_REASONS.items():
                families.add(metrics.GPU_THROTTLE_ACTIVE, bool(reasons & bit), **gpu, reason=reason)

    def _add_memory(self, families: Families, gpu: dict[str, str]) -> float | None:
        """Add the sizes of the memory, and return what is in use; old drivers count what they reserve as used."""
        info = self._calls.call("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        reserved = None if info is None else values.counted(info.reserved)
        info = info or self._calls.call("nvmlDeviceGetMemoryInfo")
        size = None if info is None else values.counted(info.total)
        used = values.counted(info.used) if size else None
        if not size or used is None or used > size:
            return None
        families.add(metrics.GPU_MEMORY_SIZE_BYTES, size, **gpu)
        families.add(metrics.GPU_MEMORY_USED_BYTES, used, **gpu)
        families.add(metrics.GPU_MEMORY_RESERVED_BYTES, reserved, **gpu)
        return used


class NvmlSlowTier(_Tier):
    """Reads of one GPU what is slow to read or seldom changes; for one thread."""

    def __init__(self, calls: DriverCalls, activity: Callable[[str, int], Activity] | None = None) -> None:
        super().__init__(calls, SLOW_CALLS, SLOW_FIELDS)
        self._links = NvLinks(calls)
        self._fabric = Fabric(calls)
        self._instances = MigInstances(calls, activity)

    def read(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        self._add_rows(families, gpu)
        self._add_remapped_rows(families, gpu)
        self._add_sram(families, gpu)
        self._fabric.add_to(families, gpu)
        self._links.add_to(families, gpu)
        self._instances.add_to(families, gpu)

    def _add_remapped_rows(self, families: Families, gpu: dict[str, str]) -> None:
        rows = self._calls.call("nvmlDeviceGetRemappedRows")
        if rows is not None:
            corrected, uncorrected, pending, failure = rows
            families.add(metrics.GPU_REMAPPED_ROWS, values.counted(corrected), **gpu, cause="corrected")
            families.add(metrics.GPU_REMAPPED_ROWS, values.counted(uncorrected), **gpu, cause="uncorrected")
            families.add(metrics.GPU_REMAPPED_ROWS_PENDING, values.within(pending, 0, 1), **gpu)
            families.add(metrics.GPU_ROW_REMAP_FAILURE, values.within(failure, 0, 1), **gpu)

    def _add_sram(self, families: Families, gpu: dict[str, str]) -> None:
        if _SRAM_STATUS is None:
            return
        status = _SRAM_STATUS()
        if self._calls.call("nvmlDeviceGetSramEccErrorStatus", byref(status)) is not None:
            families.add(metrics.GPU_SRAM_ECC_THRESHOLD_EXCEEDED, values.within(status.bThresholdExceeded, 0, 1), **gpu)
