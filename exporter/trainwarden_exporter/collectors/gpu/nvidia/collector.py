"""Collector `nvidia`: which GPUs there are, and what samples each of them. It runs in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import NVIDIA, gpus_on_bus
from trainwarden_exporter.collectors.gpu.nvidia.kernel_log import ErrorLog
from trainwarden_exporter.collectors.gpu.nvidia.ledger import Ledger
from trainwarden_exporter.collectors.gpu.nvidia.library import Library
from trainwarden_exporter.collectors.gpu.nvidia.summary import Summary
from trainwarden_exporter.collectors.gpu.state import PATIENCE, DriverTime, GpuState
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.nvidia.events import Events
    from trainwarden_exporter.core.metric import Family

# A look waits so long for the library: where all is well the GPUs are sampled at once. Where nobody else knows of a
# GPU it waits longer.
OPEN_SECONDS = 3.0


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
        self._library = Library(self._listen)
        self._ledger = Ledger()
        self._errors = ErrorLog(kernel_log, self._ledger)
        self._spent = DriverTime()
        self._states: dict[str, GpuState] = {}
        self._parts: dict[str, tuple[SampleTask, SampleTask]] = {}
        self._summary = Summary(
            self._states,
            self._library,
            self._ledger,
            self._errors,
            self._spent,
            interval=interval,
            timeout=timeout,
            expected=expected,
        )
        self._events: Events | None = None

    def collect(self) -> Sequence[Family]:
        """Look which GPUs there are; what is of none of them is sampled as a part, for it says how the GPUs are."""
        for bus in gpus_on_bus(self._sysfs, NVIDIA) if self._by_bus else []:
            self._add(bus)
        self._library.open(find=not self._states)
        self._library.wait(min(OPEN_SECONDS, self._timeout / 2) if self._states else PATIENCE * self._timeout)
        for bus in [] if self._states else self._library.found:
            self._add(bus)
        for state in self._states.values():
            self._sample(state)
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        """Return two tiers of each GPU, the driver as a whole, what listens for errors, and the summary of all."""
        parts = [part for tiers in self._parts.values() for part in tiers]
        parts.append(SampleTask(self.name, self._driver, self._interval, self._timeout, tier="driver"))
        if self._events is not None:
            events = self._events
            parts.append(SampleTask(self.name, events.read, events.interval, self._timeout, tier="events"))
        return [*parts, SampleTask(self.name, self._summary.read, self._interval, self._timeout, tier="node")]

    def close(self) -> None:
        """Release every handle; while opening the library hangs this does as well."""
        self._library.follow()
        if self._events is not None:
            self._events.close()
        self._library.close()
        self._errors.close()

    def _driver(self) -> Sequence[Family]:
        """Fail where no GPU can be asked; hang where opening the library hangs, so that this is said."""
        self._library.follow()
        failure = self._library.failure
        if failure is not None:
            raise failure.again()
        return ()

    def _listen(self) -> None:
        """Listen for errors before any GPU is opened; in the thread that opens the library."""
        from trainwarden_exporter.collectors.gpu.nvidia.events import Events  # noqa: PLC0415  # needs pynvml, which may be absent

        events = self._events or Events(self._ledger)
        events.open()
        self._events = events

    def _add(self, bus: str) -> None:
        if bus not in self._states:
            self._states[bus] = GpuState(str(len(self._states)), bus)

    def _sample(self, state: GpuState) -> None:
        if state.bus in self._parts or self._events is None:
            return
        from trainwarden_exporter.collectors.gpu.nvidia.gpu import Gpu  # noqa: PLC0415  # needs pynvml, which may be absent

        gpu = Gpu(
            state,
            self._library,
            self._spent,
            self._events.register,
            slow_interval=self._slow_interval,
            timeout=self._timeout,
        )
        self._parts[state.bus] = (
            SampleTask(self.name, gpu.fast, self._interval, self._timeout, state.bus, "fast"),
            SampleTask(self.name, gpu.slow, self._interval, self._timeout, state.bus, "slow"),
        )
