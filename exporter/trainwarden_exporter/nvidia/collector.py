"""Collector `nvidia`: which GPUs there are, and what samples each of them. It runs in a child process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.gpu.bus import NVIDIA, bus_address, gpus_on_bus
from trainwarden_exporter.gpu.state import DriverTime, GpuState
from trainwarden_exporter.nvidia.kernel_log import ErrorLog
from trainwarden_exporter.nvidia.ledger import Ledger
from trainwarden_exporter.nvidia.library import Library, NvmlUnavailable, text
from trainwarden_exporter.nvidia.summary import Summary
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.part import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.metric import Family
    from trainwarden_exporter.nvidia.events import Events

log = logging.getLogger(__name__)

SLOW_SECONDS = 30.0


def build(settings: Mapping[str, Any]) -> NvidiaCollector:
    """Return the collector that the settings describe, see `wiring`."""
    return NvidiaCollector(
        sysfs=Path(settings["sysfs"]),
        kernel_log=Path(settings["kernel_log"]),
        interval=settings["interval"],
        slow_interval=settings["slow_interval"],
        timeout=settings["timeout"],
        expected=settings["expected"],
        by_bus=settings["by_bus"],
    )


class NvidiaCollector:
    """The GPUs of the bus, those of them that NVML does not open among them, and those that were there once.

    Args:
        sysfs, kernel_log: where the node has them.
        interval, slow_interval, timeout: of the samples of a GPU, seconds.
        expected: how many GPUs there should be; None: as many as are seen at most.
        by_bus: whether a GPU that is on the bus alone counts; not in a container that was given some of a node's.
    """

    name = "nvidia"

    def __init__(
        self,
        *,
        sysfs: Path,
        kernel_log: Path,
        interval: float,
        slow_interval: float,
        timeout: float,
        expected: int | None,
        by_bus: bool,
    ) -> None:
        self._sysfs = sysfs
        self._interval, self._slow_interval, self._timeout = interval, slow_interval, timeout
        self._by_bus = by_bus
        self._library = Library()
        self._ledger = Ledger()
        self._errors = ErrorLog(kernel_log, self._ledger)
        self._spent = DriverTime()
        self._states: dict[str, GpuState] = {}
        self._parts: dict[str, tuple[Part, Part]] = {}
        self._summary = Summary(
            self._states,
            self._ledger,
            self._errors,
            self._spent,
            interval=interval,
            timeout=timeout,
            expected=expected,
        )
        self._events: Events | None = None
        self._generation = 0
        self._failure: NvmlUnavailable | None = None

    def collect(self) -> Sequence[Family]:
        """Look which GPUs there are; what is of none of them is sampled as a part, for it says how the GPUs are."""
        for bus in gpus_on_bus(self._sysfs, NVIDIA) if self._by_bus else []:
            self._add(bus)
        try:
            self._library.open()
        except NvmlUnavailable as error:
            self._failure, self._summary.driver_error = error, error.error
            return ()
        self._failure, self._summary.driver_error = None, None
        self._summary.driver = self._library.driver
        if self._generation != self._library.generation:
            self._begin()
        if not self._states:
            self._ask_which()
        return ()

    def parts(self) -> Sequence[Part]:
        """Return two tiers of each GPU, what listens for errors, and the summary of all."""
        parts = [part for tiers in self._parts.values() for part in tiers]
        if self._failure is not None:
            parts.append(Part(self.name, self._raise, self._interval, self._timeout, tier="driver"))
        if self._events is not None:
            events = self._events
            parts.append(Part(self.name, events.read, events.interval, self._timeout, tier="events"))
        return [*parts, Part(self.name, self._summary.read, self._interval, self._timeout, tier="node")]

    def close(self) -> None:
        """Release every handle."""
        if self._events is not None:
            self._events.close()
        self._library.close()
        self._errors.close()

    def _begin(self) -> None:
        """Take the GPUs into sight with a library that has just been opened."""
        from trainwarden_exporter.nvidia.events import Events  # noqa: PLC0415  # needs pynvml, which may be absent

        self._generation = self._library.generation
        if self._events is None:
            self._events = Events(self._ledger)
        self._events.open()
        for state in self._states.values():
            self._sample(state)

    def _add(self, bus: str) -> None:
        if bus not in self._states:
            state = self._states[bus] = GpuState(str(len(self._states)), bus)
            if self._events is not None:
                self._sample(state)

    def _sample(self, state: GpuState) -> None:
        from trainwarden_exporter.nvidia.gpu import Gpu  # noqa: PLC0415  # needs pynvml, which may be absent

        if state.bus not in self._parts and self._events is not None:
            gpu = Gpu(
                state,
                self._library,
                self._spent,
                self._events.register,
                slow_interval=self._slow_interval,
                timeout=self._timeout,
            )
            self._parts[state.bus] = (
                Part(self.name, gpu.fast, self._interval, self._timeout, state.bus, "fast"),
                Part(self.name, gpu.slow, self._interval, self._timeout, state.bus, "slow"),
            )

    def _ask_which(self) -> None:
        """Ask NVML which GPUs there are, where the bus cannot be read or is not to be believed."""
        import pynvml  # noqa: PLC0415  # the library is open

        try:
            with calling("nvmlDeviceGetCount_v2"):
                count = pynvml.nvmlDeviceGetCount()
            for index in range(count):
                with calling("nvmlDeviceGetHandleByIndex_v2"):
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                with calling("nvmlDeviceGetPciInfo_v3"):
                    bus = bus_address(text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
                if bus is not None:
                    self._add(bus)
        except pynvml.NVMLError as error:
            log.warning("NVML does not say which GPUs there are: %s", text(error))

    def _raise(self) -> Sequence[Family]:
        if self._failure is not None:
            raise self._failure.again()
        return ()
