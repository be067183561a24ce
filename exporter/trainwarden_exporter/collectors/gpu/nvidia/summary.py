"""What is said of all NVIDIA GPUs of the node, without asking the driver: it is there while one of them hangs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.node import add_node
from trainwarden_exporter.collectors.gpu.nvidia.ledger import ACTION_CODES, Count
from trainwarden_exporter.collectors.gpu.state import PATIENCE, wait_for_first_samples
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.collectors.gpu.nvidia.kernel_log import ErrorLog
    from trainwarden_exporter.collectors.gpu.nvidia.ledger import Ledger
    from trainwarden_exporter.collectors.gpu.nvidia.library import Library
    from trainwarden_exporter.collectors.gpu.state import DriverTime, GpuState
    from trainwarden_exporter.core.metric import Family

VENDOR = "nvidia"
SLACK_SECONDS = 2.0


class Summary:
    """The node's GPUs together; for one thread.

    Args:
        states: the GPUs by bus address; others may be added meanwhile.
        interval, timeout: of their fast samples, seconds.
        expected: how many there should be; None where nobody says.
    """

    def __init__(
        self,
        states: Mapping[str, GpuState],
        library: Library,
        ledger: Ledger,
        errors: ErrorLog,
        spent: DriverTime,
        *,
        interval: float,
        timeout: float,
        expected: int | None,
    ) -> None:
        self._states = states
        self._library = library
        self._ledger = ledger
        self._errors = errors
        self._spent = spent
        self._timeout = timeout
        self._fresh = interval + timeout + SLACK_SECONDS
        self._expected = expected

    def read(self) -> list[Family]:
        """Return the families; waits at first until each GPU was asked once, or is over its deadline soon."""
        states = list(self._states.values())
        begun = time.monotonic()
        driver_error = self._library.error(PATIENCE * self._timeout)
        if driver_error is None:
            wait_for_first_samples(states, self._timeout - (time.monotonic() - begun))
        self._errors.read()
        families = Families()
        now = time.monotonic()
        down = {state.bus: driver_error or state.why_down(now, self._timeout, self._fresh) for state in states}
        for state in states:
            self._identity(families, state, down[state.bus])
        readings = [state.good[1] for state in states if down[state.bus] is None and state.good is not None]
        add_node(families, VENDOR, readings, sum(why is not None for why in down.values()))
        self._counts(families, states, len(readings), driver_error)
        self._xids(families, states)
        return families.collected()

    def _identity(self, families: Families, state: GpuState, why: str | None) -> None:
        gpu = {"gpu": state.index, "uuid": state.uuid}
        families.add(metrics.GPU_UP, why is None, **gpu)
        if why is not None:
            families.add(metrics.GPU_ERROR_INFO, 1, error=why, **gpu)
        unknown = {"model": "", "serial": "", "vbios": ""}
        info = state.info or unknown
        families.add(
            metrics.GPU_INFO, 1, vendor=VENDOR, pci_bus_id=state.bus, driver=self._library.driver, **info, **gpu
        )
        for error, number in state.read_errors.copy().items():
            families.add(metrics.GPU_READ_ERRORS_TOTAL, number, error=error, **gpu)

    def _counts(self, families: Families, states: list[GpuState], visible: int, driver_error: str | None) -> None:
        expected = len(states) if self._expected is None else self._expected
        families.add(metrics.GPU_DEVICES_EXPECTED, expected, vendor=VENDOR)
        families.add(metrics.GPU_DEVICES_VISIBLE, visible, vendor=VENDOR)
        if driver_error is not None:
            families.add(metrics.GPU_DRIVER_ERROR_INFO, 1, vendor=VENDOR, error=driver_error)
        if self._errors.readable is not None:
            families.add(metrics.GPU_KERNEL_LOG_READABLE, self._errors.readable, vendor=VENDOR)
        for tier, seconds in self._spent.totals().items():
            families.add(metrics.TRAINWARDEN_DRIVER_SECONDS_TOTAL, seconds, collector=VENDOR, tier=tier)

    def _xids(self, families: Families, states: list[GpuState]) -> None:
        found = self._ledger.counts()
        named = {state.bus: (state.index, state.uuid) for state in states}
        counts = {(*gpu, code): found.get((bus, code), Count()) for bus, gpu in named.items() for code in ACTION_CODES}
        for (bus, code), count in found.items():
            key = (*named.get(bus, ("", "")), code)
            before = counts.get(key)
            # Errors of several GPUs that are not here any more stand together.
            counts[key] = count if before is None or bus in named else _together(before, count)
        for (index, uuid, code), count in sorted(counts.items()):
            gpu = {"gpu": index, "uuid": uuid, "xid": str(code)}
            families.add(metrics.GPU_XID_ERRORS_TOTAL, count.number, **gpu)
            families.add(metrics.GPU_XID_LAST_TIMESTAMP_SECONDS, count.last, **gpu)


def _together(one: Count, other: Count) -> Count:
    return Count(one.number + other.number, max(one.last or 0.0, other.last or 0.0) or None)
