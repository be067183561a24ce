"""What changes from second to second, and costs the driver little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.node import Reading
from trainwarden_exporter.collectors.gpu.nvidia.fields import ALL_LINKS, Fields
from trainwarden_exporter.collectors.gpu.nvidia.valid import celsius, counted, ratio, watts, within

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.nvidia.calls import Calls
    from trainwarden_exporter.core.metric import Families

MEMORY_TEMPERATURE = (82, 0)
NVLINK_TX, NVLINK_RX = (138, ALL_LINKS), (139, ALL_LINKS)
KIB = 1024
# Time for which clocks were held down, nanoseconds, by the words of REASONS.
HELD_DOWN = {
    (74, 0): "sw_power_cap",
    (76, 0): "sync_boost",
    (269, 0): "sw_thermal",
    (270, 0): "hw_thermal",
    (271, 0): "hw_power_brake",
}
REASONS = {
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
CLOCKS = {0: "graphics", 1: "sm", 2: "memory", 3: "video"}
# Named differently by drivers before 535.
_REASON_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class FastTier:
    """Reads one GPU; for one thread."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._fields = Fields([MEMORY_TEMPERATURE, NVLINK_TX, NVLINK_RX, *HELD_DOWN])

    def read(self, families: Families, **gpu: str) -> Reading:
        """Add the series of one sample; raises `GpuDown`."""
        fields = self._fields.read(self.calls)
        utilization = self._utilization(families, gpu)
        used = memory(families, self.calls, gpu)
        temperature = self._temperatures(families, fields, gpu)
        power = self._power(families, gpu)
        self._clocks(families, fields, gpu)
        for name, key in (
            (metrics.GPU_NVLINK_TX_BYTES_TOTAL, NVLINK_TX),
            (metrics.GPU_NVLINK_RX_BYTES_TOTAL, NVLINK_RX),
        ):
            if key in fields:
                families.add(name, fields[key] * KIB, **gpu)
        return Reading(utilization, power, temperature, used)

    def _utilization(self, families: Families, gpu: dict[str, str]) -> float | None:
        rates = self.calls.ask("nvmlDeviceGetUtilizationRates")
        busy = None if rates is None else ratio(rates.gpu)
        families.add(metrics.GPU_UTILIZATION_RATIO, busy, **gpu)
        families.add(metrics.GPU_MEMORY_BUSY_RATIO, None if rates is None else ratio(rates.memory), **gpu)
        return busy

    def _temperatures(
        self, families: Families, fields: dict[tuple[int, int], float], gpu: dict[str, str]
    ) -> float | None:
        sensors = {
            "gpu": celsius(self.calls.ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)),
            "memory": celsius(fields.get(MEMORY_TEMPERATURE)),
        }
        for sensor, value in sensors.items():
            families.add(metrics.GPU_TEMPERATURE_CELSIUS, value, sensor=sensor, **gpu)
        margin = within(self.calls.ask("nvmlDeviceGetMarginTemperature"), -100, 200)
        families.add(metrics.GPU_TEMPERATURE_MARGIN_CELSIUS, margin, **gpu)
        return max((value for value in sensors.values() if value is not None), default=None)

    def _power(self, families: Families, gpu: dict[str, str]) -> float | None:
        power = watts(self.calls.ask("nvmlDeviceGetPowerUsage"))
        families.add(metrics.GPU_POWER_WATTS, power, **gpu)
        families.add(metrics.GPU_POWER_LIMIT_WATTS, watts(self.calls.ask("nvmlDeviceGetEnforcedPowerLimit")), **gpu)
        energy = counted(self.calls.ask("nvmlDeviceGetTotalEnergyConsumption"))
        families.add(metrics.GPU_ENERGY_JOULES_TOTAL, None if energy is None else energy / 1000, **gpu)
        return power

    def _clocks(self, families: Families, fields: dict[tuple[int, int], float], gpu: dict[str, str]) -> None:
        for clock, domain in CLOCKS.items():
            megahertz = within(self.calls.ask("nvmlDeviceGetClockInfo", clock), 0, 100_000)
            families.add(metrics.GPU_CLOCK_HERTZ, None if megahertz is None else megahertz * 1e6, domain=domain, **gpu)
        reasons = next((mask for name in _REASON_CALLS if (mask := self.calls.ask(name)) is not None), None)
        if reasons is not None:
            for bit, reason in REASONS.items():
                families.add(metrics.GPU_THROTTLE_ACTIVE, bool(reasons & bit), reason=reason, **gpu)
        for key, reason in HELD_DOWN.items():
            if key in fields:
                families.add(metrics.GPU_THROTTLE_SECONDS_TOTAL, fields[key] / 1e9, reason=reason, **gpu)


def memory(families: Families, calls: Calls, gpu: dict[str, str]) -> float | None:
    """Add what a GPU has of memory, and return what is in use of it; old drivers count what they reserve as used."""
    info = calls.ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    reserved = None if info is None else counted(info.reserved)
    info = info or calls.ask("nvmlDeviceGetMemoryInfo")
    size = None if info is None else counted(info.total)
    used = counted(info.used) if size else None
    if size and used is not None and used <= size:
        families.add(metrics.GPU_MEMORY_SIZE_BYTES, size, **gpu)
        families.add(metrics.GPU_MEMORY_USED_BYTES, used, **gpu)
        families.add(metrics.GPU_MEMORY_RESERVED_BYTES, reserved, **gpu)
        return used
    return None
