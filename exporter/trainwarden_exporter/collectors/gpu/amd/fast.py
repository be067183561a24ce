"""What changes from second to second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.amd.values import celsius, hertz, number, ratio, watts
from trainwarden_exporter.collectors.gpu.node import Reading

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.amd.calls import Calls
    from trainwarden_exporter.core.metric import Families

SENSORS = {"EDGE": "gpu", "HOTSPOT": "junction", "VRAM": "memory"}
CLOCKS = {"GFX": "graphics", "MEM": "memory", "VCLK0": "video", "SOC": "soc"}


def read_fast(families: Families, calls: Calls, **gpu: str) -> Reading:
    """Add the series of one sample."""
    activity = calls.table("amdsmi_get_gpu_activity")
    busy = ratio(activity.get("gfx_activity"))
    families.add(metrics.GPU_UTILIZATION_RATIO, busy, **gpu)
    families.add(metrics.GPU_MEMORY_BUSY_RATIO, ratio(activity.get("umc_activity")), **gpu)
    power = calls.table("amdsmi_get_power_info")
    drawn = watts(*(power.get(key) for key in ("socket_power", "current_socket_power", "average_socket_power")))
    families.add(metrics.GPU_POWER_WATTS, drawn, **gpu)
    families.add(metrics.GPU_ENERGY_JOULES_TOTAL, _energy(calls), **gpu)
    for clock, domain in CLOCKS.items():
        kind = calls.constant("AmdSmiClkType", clock)
        if kind is not None:
            families.add(
                metrics.GPU_CLOCK_HERTZ,
                hertz(calls.table("amdsmi_get_clock_info", kind).get("clk")),
                domain=domain,
                **gpu,
            )
    return Reading(busy, drawn, _temperatures(families, calls, gpu), _memory(families, calls, gpu))


def _energy(calls: Calls) -> float | None:
    counter = calls.table("amdsmi_get_energy_count")
    ticks, microjoules = number(counter.get("energy_accumulator")), number(counter.get("counter_resolution"))
    return ticks * microjoules / 1e6 if ticks is not None and microjoules else None


def _temperatures(families: Families, calls: Calls, gpu: dict[str, str]) -> float | None:
    now = calls.constant("AmdSmiTemperatureMetric", "CURRENT")
    found = []
    for name, sensor in SENSORS.items():
        kind = calls.constant("AmdSmiTemperatureType", name)
        value = None if kind is None or now is None else celsius(calls.ask("amdsmi_get_temp_metric", kind, now))
        families.add(metrics.GPU_TEMPERATURE_CELSIUS, value, sensor=sensor, **gpu)
        if value is not None:
            found.append(value)
    return max(found, default=None)


def _memory(families: Families, calls: Calls, gpu: dict[str, str]) -> float | None:
    kind = calls.constant("AmdSmiMemoryType", "VRAM")
    if kind is None:
        return None
    size = number(calls.ask("amdsmi_get_gpu_memory_total", kind))
    used = number(calls.ask("amdsmi_get_gpu_memory_usage", kind))
    if not size:
        return None
    families.add(metrics.GPU_MEMORY_SIZE_BYTES, size, **gpu)
    used = used if used is not None and used <= size else None
    families.add(metrics.GPU_MEMORY_USED_BYTES, used, **gpu)
    return used
