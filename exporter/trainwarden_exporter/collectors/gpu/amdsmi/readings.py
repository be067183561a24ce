"""The readings of one AMD GPU: utilization, power, clocks, temperatures, memory, ECC, PCIe, XGMI, pages, throttling.

A reading that is one key of a call's dictionary is a row of a table: metric, key, unit, further labels.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden_exporter.collectors.gpu import link_metrics, metrics
from trainwarden_exporter.collectors.gpu.amdsmi import values
from trainwarden_exporter.collectors.gpu.state import GpuReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainwarden_exporter.collectors.gpu.amdsmi.values import AmdsmiCalls
    from trainwarden_exporter.core.metric import Families, Metric


class KeyReading(NamedTuple):
    """A metric that is one key of the dictionary that a call returns."""

    metric: Metric
    key: str
    value: Callable[[Any], float | None]
    labels: Mapping[str, str] = {}


FAST_CALLS = {
    "amdsmi_get_gpu_activity": (
        KeyReading(metrics.GPU_UTILIZATION_RATIO, "gfx_activity", values.ratio),
        KeyReading(metrics.GPU_MEMORY_BUSY_RATIO, "umc_activity", values.ratio),
    ),
}
SLOW_CALLS = {
    "amdsmi_get_power_cap_info": (KeyReading(metrics.GPU_POWER_LIMIT_WATTS, "power_cap", values.watts_of_microwatts),),
    "amdsmi_get_gpu_total_ecc_count": (
        KeyReading(metrics.GPU_ECC_ERRORS_TOTAL, "correctable_count", values.number, {"kind": "corrected"}),
        KeyReading(metrics.GPU_ECC_ERRORS_TOTAL, "uncorrectable_count", values.number, {"kind": "uncorrected"}),
        KeyReading(metrics.GPU_ECC_ERRORS_TOTAL, "deferred_count", values.number, {"kind": "deferred"}),
    ),
}
PCIE_METRIC = (
    KeyReading(metrics.GPU_PCIE_REPLAYS_TOTAL, "pcie_replay_count", values.number),
    KeyReading(metrics.GPU_PCIE_LINK_WIDTH, "pcie_width", values.lanes),
    KeyReading(metrics.GPU_PCIE_LINK_GENERATION, "pcie_speed", values.generation),
)
SENSORS = {"EDGE": "gpu", "HOTSPOT": "junction", "VRAM": "memory"}
CLOCKS = {"GFX": "graphics", "MEM": "memory", "VCLK0": "video", "SOC": "soc"}
POWERS = ("socket_power", "current_socket_power", "average_socket_power")
# Names in amdsmi, and the reasons on the page, which are the same for every vendor.
VIOLATIONS = {
    "ppt_pwr": "sw_power_cap",
    "socket_thrm": "hw_thermal",
    "prochot_thrm": "prochot",
    "vr_thrm": "vr_thermal",
    "hbm_thrm": "hbm_thermal",
}
PAGE_STATES = {0: "reserved", 1: "pending", 2: "unreservable"}
LINK_STATES = {"U": 1, "D": 0}
KIB = 1024


class AmdsmiFastTier:
    """Reads of one GPU what changes from second to second; for one thread."""

    def __init__(self, calls: AmdsmiCalls) -> None:
        self._calls = calls

    @property
    def answered(self) -> int:
        """Number of calls that returned a value so far."""
        return self._calls.answered

    @property
    def last_error(self) -> str:
        """Error of the last call that failed."""
        return self._calls.last_error

    def read(self, families: Families, gpu: dict[str, str]) -> GpuReading:
        """Add the series of one sample; raises `GpuDown`."""
        activity = _add_calls(families, self._calls, FAST_CALLS, gpu)
        power = self._add_power(families, gpu)
        self._add_clocks(families, gpu)
        temperature = self._add_temperatures(families, gpu)
        used = self._add_memory(families, gpu)
        return GpuReading(activity.get(metrics.GPU_UTILIZATION_RATIO), power, temperature, used)

    def _add_power(self, families: Families, gpu: dict[str, str]) -> float | None:
        info = self._calls.table("amdsmi_get_power_info")
        power = values.watts(*(info.get(key) for key in POWERS))
        families.add(metrics.GPU_POWER_WATTS, power, **gpu)
        counter = self._calls.table("amdsmi_get_energy_count")
        ticks = values.number(counter.get("energy_accumulator"))
        microjoules = values.number(counter.get("counter_resolution"))
        energy = ticks * microjoules / 1e6 if ticks is not None and microjoules else None
        families.add(metrics.GPU_ENERGY_JOULES_TOTAL, energy, **gpu)
        return power

    def _add_clocks(self, families: Families, gpu: dict[str, str]) -> None:
        for name, domain in CLOCKS.items():
            kind = self._calls.constant("AmdSmiClkType", name)
            if kind is not None:
                clock = values.hertz(self._calls.table("amdsmi_get_clock_info", kind).get("clk"))
                families.add(metrics.GPU_CLOCK_HERTZ, clock, **gpu, domain=domain)

    def _add_temperatures(self, families: Families, gpu: dict[str, str]) -> float | None:
        now = self._calls.constant("AmdSmiTemperatureMetric", "CURRENT")
        found = []
        for name, sensor in SENSORS.items():
            kind = self._calls.constant("AmdSmiTemperatureType", name)
            if kind is None or now is None:
                continue
            value = values.celsius(self._calls.call("amdsmi_get_temp_metric", kind, now))
            families.add(metrics.GPU_TEMPERATURE_CELSIUS, value, **gpu, sensor=sensor)
            if value is not None:
                found.append(value)
        return max(found, default=None)

    def _add_memory(self, families: Families, gpu: dict[str, str]) -> float | None:
        kind = self._calls.constant("AmdSmiMemoryType", "VRAM")
        if kind is None:
            return None
        size = values.number(self._calls.call("amdsmi_get_gpu_memory_total", kind))
        used = values.number(self._calls.call("amdsmi_get_gpu_memory_usage", kind))
        if not size:
            return None
        families.add(metrics.GPU_MEMORY_SIZE_BYTES, size, **gpu)
        used = used if used is not None and used <= size else None
        families.add(metrics.GPU_MEMORY_USED_BYTES, used, **gpu)
        return used


class AmdsmiSlowTier:
    """Reads of one GPU what is slow to read or seldom changes; for one thread."""

    def __init__(self, calls: AmdsmiCalls) -> None:
        self._calls = calls
        # Of the last sample: its time (monotonic), the firmware's steps, and the steps under each limit.
        self._before: tuple[float, float, dict[str, float]] | None = None
        self._throttled: dict[str, float] = {}

    def read(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        _add_calls(families, self._calls, SLOW_CALLS, gpu)
        pcie = self._calls.table("amdsmi_get_pcie_info").get("pcie_metric")
        if isinstance(pcie, dict):
            _add_rows(families, PCIE_METRIC, pcie, gpu)
        self._add_xgmi(families, gpu)
        self._add_pages(families, gpu)
        self._add_throttling(families, gpu)

    def _add_xgmi(self, families: Families, gpu: dict[str, str]) -> None:
        states = _list(self._calls.table("amdsmi_get_gpu_xgmi_link_status").get("status"))
        ups = [LINK_STATES.get(str(state)) for state in states]
        for link, up in enumerate(ups):
            families.add(link_metrics.GPU_XGMI_LINK_UP, up, **gpu, link=str(link))
        known = [up for up in ups if up is not None]
        families.add(link_metrics.GPU_LINKS_UP, sum(known) if known else None, **gpu, kind="xgmi")
        links = _list(self._calls.table("amdsmi_get_link_metrics").get("links"))
        for direction, metric in (
            ("read", link_metrics.GPU_XGMI_READ_BYTES_TOTAL),
            ("write", link_metrics.GPU_XGMI_WRITE_BYTES_TOTAL),
        ):
            amounts = [values.number(link.get(direction)) for link in links if isinstance(link, dict)]
            counted = [amount for amount in amounts if amount is not None]
            families.add(metric, sum(counted) * KIB if counted else None, **gpu)

    def _add_pages(self, families: Families, gpu: dict[str, str]) -> None:
        pages = self._calls.call("amdsmi_get_gpu_bad_page_info")
        if not isinstance(pages, list):  # old versions return a sentence where there are none
            return
        for code, state in PAGE_STATES.items():
            count = sum(1 for page in pages if isinstance(page, dict) and page.get("status") == code)
            families.add(metrics.GPU_RETIRED_PAGES, count, **gpu, state=state)

    def _add_throttling(self, families: Families, gpu: dict[str, str]) -> None:
        status, now = self._calls.table("amdsmi_get_violation_status"), time.monotonic()
        for key, reason in VIOLATIONS.items():
            families.add(metrics.GPU_THROTTLE_ACTIVE, values.flag(status.get(f"active_{key}")), **gpu, reason=reason)
        steps = values.number(status.get("acc_counter"))
        if steps is None:
            return
        counts = {key: count for key in VIOLATIONS if (count := values.number(status.get(f"acc_{key}"))) is not None}
        self._add_up(now, steps, counts)
        for key in counts:
            families.add(metrics.GPU_THROTTLE_SECONDS_TOTAL, self._throttled[key], **gpu, reason=VIOLATIONS[key])

    def _add_up(self, now: float, steps: float, counts: dict[str, float]) -> None:
        """Add the seconds since the last sample that were spent under each limit.

        amdsmi counts steps of the firmware, whose length is not documented: their share of all steps is the share of
        the time.
        """
        before, self._before = self._before, (now, steps, counts)
        for key, count in counts.items():
            self._throttled.setdefault(key, 0.0)
            if before is not None and steps > before[1] and key in before[2] and count >= before[2][key]:
                share = min(1.0, (count - before[2][key]) / (steps - before[1]))
                self._throttled[key] += share * (now - before[0])


def _add_calls(
    families: Families, calls: AmdsmiCalls, rows: Mapping[str, tuple[KeyReading, ...]], gpu: dict[str, str]
) -> dict[Metric, float]:
    found: dict[Metric, float] = {}
    for function, readings in rows.items():
        found.update(_add_rows(families, readings, calls.table(function), gpu))
    return found


def _add_rows(
    families: Families, rows: tuple[KeyReading, ...], table: Mapping[str, Any], gpu: dict[str, str]
) -> dict[Metric, float]:
    """Add the series of one dictionary, and return their values by metric."""
    found: dict[Metric, float] = {}
    for metric, key, convert, labels in rows:
        value = convert(table.get(key))
        if value is not None:
            families.add(metric, value, **gpu, **labels)
            found[metric] = value
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
