"""The GPUs of one vendor together, read without a call of the driver: which are down, why, and the node's totals."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import metrics, node_metrics
from trainwarden_exporter.collectors.gpu.state import WAIT_SHARE, wait_for_first_samples
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.scrape_times import LONGEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.device import DriverTime
    from trainwarden_exporter.collectors.gpu.driver import GpuDriver
    from trainwarden_exporter.collectors.gpu.state import GpuReading, GpuState
    from trainwarden_exporter.core.metric import Family

SLACK_SECONDS = 2.0


class GpuNode:
    """State, identity and totals of a vendor's GPUs; for one thread.

    Args:
        states: the GPUs by bus address; others may be added meanwhile.
        driver: of the vendor.
        spent: seconds that the GPUs' samples took.
        interval, timeout: of their fast samples, seconds.
        expected: number of GPUs that the node should have; None: as many as were seen.
    """

    def __init__(
        self,
        states: Mapping[str, GpuState],
        driver: GpuDriver,
        spent: DriverTime,
        *,
        interval: float,
        timeout: float,
        expected: int | None,
    ) -> None:
        self._states = states
        self._driver = driver
        self._spent = spent
        self._timeout = timeout
        self._fresh = max(interval, LONGEST_SECONDS) + timeout + SLACK_SECONDS
        self._expected = expected

    def read(self) -> list[Family]:
        """Return the families; at first wait until each GPU was sampled once, or almost reached its deadline."""
        states, begun = list(self._states.values()), time.monotonic()
        driver_error = self._driver.error(WAIT_SHARE * self._timeout)  # a library that opens slowly does not hang
        if self._driver.is_open and driver_error is None:
            attempted = [state.attempted for state in states]
            wait_for_first_samples(attempted, self._timeout - (time.monotonic() - begun))
        families, now = Families(), time.monotonic()
        suspended = {state.bus: self._driver.is_suspended(state.bus) for state in states}
        awake = [state for state in states if not suspended[state.bus]]
        # Without the library the state of no GPU is known: neither up nor down.
        unknown = driver_error in self._driver.missing_tools
        why = {state.bus: driver_error or state.why_down(now, self._timeout, self._fresh) for state in awake}
        for state in states:
            families.add(metrics.GPU_SUSPENDED, suspended[state.bus], **state.labels)
            if state.bus in why and not unknown:
                _add_up(families, state, why[state.bus])
            self._add_identity(families, state)
        readings = [state.good[1] for state in awake if why[state.bus] is None and state.good is not None]
        down = None if unknown else sum(error is not None for error in why.values())
        add_totals(families, self._driver.vendor, readings, down)
        self._add_counts(families, len(readings), driver_error)
        self._driver.add_to_node(families, states)
        return families.collected()

    def _add_identity(self, families: Families, state: GpuState) -> None:
        vendor = self._driver.vendor
        info = {"model": "", "serial": "", "vbios": "", "driver": self._driver.version} | dict(state.info)
        families.add(metrics.GPU_INFO, 1, **state.labels, vendor=vendor, pci_bus_id=state.bus, **info)
        for error, number in state.read_errors.copy().items():
            families.add(metrics.GPU_READ_ERRORS_TOTAL, number, **state.labels, error=error)

    def _add_counts(self, families: Families, answering: int, driver_error: str | None) -> None:
        vendor = self._driver.vendor
        expected = len(self._states) if self._expected is None else self._expected
        families.add(node_metrics.GPU_DEVICES_EXPECTED, expected, vendor=vendor)
        families.add(node_metrics.GPU_DEVICES_VISIBLE, self._driver.visible(answering), vendor=vendor)
        if driver_error is not None:
            families.add(node_metrics.GPU_DRIVER_ERROR_INFO, 1, vendor=vendor, error=driver_error)
        for tier, seconds in self._spent.totals().items():
            families.add(node_metrics.TRAINWARDEN_DRIVER_SECONDS_TOTAL, seconds, collector=vendor, tier=tier)


def add_totals(families: Families, vendor: str, readings: Sequence[GpuReading], down: int | None) -> None:
    """Add the aggregates over the GPUs that answer; `down` is how many do not, None where that is not known."""
    utilization = [reading.utilization for reading in readings if reading.utilization is not None]
    for stat, value in _stats(utilization).items():
        families.add(node_metrics.GPU_NODE_UTILIZATION_RATIO, value, vendor=vendor, stat=stat)
    power = [reading.power for reading in readings if reading.power is not None]
    for stat, value in {**_stats(power), **({"sum": math.fsum(power)} if power else {})}.items():
        families.add(node_metrics.GPU_NODE_POWER_WATTS, value, vendor=vendor, stat=stat)
    temperatures = [reading.temperature for reading in readings if reading.temperature is not None]
    families.add(node_metrics.GPU_NODE_TEMPERATURE_CELSIUS, max(temperatures, default=None), vendor=vendor, stat="max")
    memory = [reading.memory_used for reading in readings if reading.memory_used is not None]
    families.add(node_metrics.GPU_NODE_MEMORY_USED_BYTES, sum(memory) if memory else None, vendor=vendor)
    families.add(node_metrics.GPU_NODE_DEVICES_DOWN, down, vendor=vendor)


def _add_up(families: Families, state: GpuState, why_down: str | None) -> None:
    families.add(metrics.GPU_UP, why_down is None, **state.labels)
    if why_down is not None:
        families.add(metrics.GPU_ERROR_INFO, 1, **state.labels, error=why_down)


def _stats(values: Sequence[float]) -> dict[str, float]:
    # fsum: the sum of ratios in the last digit too, whichever Python adds them up (from 3.12 on sum() compensates).
    return {"min": min(values), "avg": math.fsum(values) / len(values), "max": max(values)} if values else {}
