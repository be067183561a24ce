"""What changes from second to second, and costs the driver little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.gpu.node import Reading
from trainwarden_exporter.nvidia.fields import ALL_LINKS, Fields
from trainwarden_exporter.nvidia.valid import celsius, counted, ratio, watts, within

if TYPE_CHECKING:
    from trainwarden_exporter.catalog import Families
    from trainwarden_exporter.nvidia.calls import Calls

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
        for name, key in (("gpu_nvlink_tx_bytes_total", NVLINK_TX), ("gpu_nvlink_rx_bytes_total", NVLINK_RX)):
            if key in fields:
                families.add(name, fields[key] * KIB, **gpu)
        return Reading(utilization, power, temperature, used)

    def _utilization(self, families: Families, gpu: dict[str, str]) -> float | None:
        rates = self.calls.ask("nvmlDeviceGetUtilizationRates")
        busy = None if rates is None else ratio(rates.gpu)
        families.add("gpu_utilization_ratio", busy, **gpu)
        families.add("gpu_memory_busy_ratio", None if rates is None else ratio(rates.memory), **gpu)
        return busy

    def _temperatures(
        self, families: Families, fields: dict[tuple[int, int], float], gpu: dict[str, str]
    ) -> float | None:
        sensors = {
            "gpu": celsius(self.calls.ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)),
            "memory": celsius(fields.get(MEMORY_TEMPERATURE)),
        }
        for sensor, value in sensors.items():
            families.add("gpu_temperature_celsius", value, sensor=sensor, **gpu)
        margin = within(self.calls.ask("nvmlDeviceGetMarginTemperature"), -100, 200)
        families.add("gpu_temperature_margin_celsius", margin, **gpu)
        return max((value for value in sensors.values() if value is not None), default=None)

    def _power(self, families: Families, gpu: dict[str, str]) -> float | None:
        power = watts(self.calls.ask("nvmlDeviceGetPowerUsage"))
        families.add("gpu_power_watts", power, **gpu)
        families.add("gpu_power_limit_watts", watts(self.calls.ask("nvmlDeviceGetEnforcedPowerLimit")), **gpu)
        energy = counted(self.calls.ask("nvmlDeviceGetTotalEnergyConsumption"))
        families.add("gpu_energy_joules_total", None if energy is None else energy / 1000, **gpu)
        return power

    def _clocks(self, families: Families, fields: dict[tuple[int, int], float], gpu: dict[str, str]) -> None:
        for clock, domain in CLOCKS.items():
            megahertz = within(self.calls.ask("nvmlDeviceGetClockInfo", clock), 0, 100_000)
            families.add("gpu_clock_hertz", None if megahertz is None else megahertz * 1e6, domain=domain, **gpu)
        reasons = next((mask for name in _REASON_CALLS if (mask := self.calls.ask(name)) is not None), None)
        if reasons is not None:
            for bit, reason in REASONS.items():
                families.add("gpu_throttle_active", bool(reasons & bit), reason=reason, **gpu)
        for key, reason in HELD_DOWN.items():
            if key in fields:
                families.add("gpu_throttle_seconds_total", fields[key] / 1e9, reason=reason, **gpu)


def memory(families: Families, calls: Calls, gpu: dict[str, str]) -> float | None:
    """Add what a GPU has of memory, and return what is in use of it; old drivers count what they reserve as used."""
    info = calls.ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    reserved = None if info is None else counted(info.reserved)
    info = info or calls.ask("nvmlDeviceGetMemoryInfo")
    size = None if info is None else counted(info.total)
    used = counted(info.used) if size else None
    if size and used is not None and used <= size:
        families.add("gpu_memory_size_bytes", size, **gpu)
        families.add("gpu_memory_used_bytes", used, **gpu)
        families.add("gpu_memory_reserved_bytes", reserved, **gpu)
        return used
    return None
