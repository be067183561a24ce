"""NVML as a driver of the GPU collector: open it, list its GPUs, open one and identify it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import NVIDIA, bus_address
from trainwarden_exporter.collectors.gpu.calls import DriverCalls, Effect, GpuDown, LibraryDown
from trainwarden_exporter.collectors.gpu.driver import RETRY_SECONDS, DriverUnavailable, GpuDriver, NodeTask, OpenGpu
from trainwarden_exporter.collectors.gpu.nvml.codes import failure_of, name_of
from trainwarden_exporter.collectors.gpu.nvml.values import text
from trainwarden_exporter.collectors.gpu.nvml.xid import XidCounter, XidKernelLog, add_xids
from trainwarden_exporter.sampling.calls import calling, enter

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu.nvml.events import XidEvents
    from trainwarden_exporter.collectors.gpu.nvml.readings import NvmlFastTier, NvmlSlowTier
    from trainwarden_exporter.collectors.gpu.state import GpuState
    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.core.state_file import StateFile

log = logging.getLogger(__name__)

_IDENTITY = {
    "model": "nvmlDeviceGetName",
    "serial": "nvmlDeviceGetSerial",
    "vbios": "nvmlDeviceGetVbiosVersion",
}


class NvmlDriver(GpuDriver):
    """NVML, its events and the lines of the kernel's log about its GPUs.

    Args:
        kernel_log: /dev/kmsg.
        retry_seconds: pause after a failed attempt to open NVML.
        state: where the counts of errors are kept over a restart.
        boot_id: of the kernel; empty if unknown, and nothing is kept then.
        activity: read how busy the parts of a GPU are as well.
    """

    vendor = "nvidia"
    pci_vendor = NVIDIA
    library = "NVML"
    opening = "nvmlInit_v2"
    max_open_pause = 30.0

    def __init__(
        self,
        kernel_log: Path,
        retry_seconds: float = RETRY_SECONDS,
        *,
        state: StateFile | None = None,
        boot_id: str = "",
        activity: bool = True,
    ) -> None:
        super().__init__(retry_seconds)
        self._xids = XidCounter()
        self._kernel_log = XidKernelLog(kernel_log, self._xids, state, boot_id)
        self._events: XidEvents | None = None
        self._lists_gpus = False
        self._activity = activity
        self._activity_buffers: dict[str, tuple[Any, Any]] = {}

    def look(self, on_bus: Collection[str], states: Collection[GpuState], *, known: bool) -> None:  # noqa: ARG002  # NVML opens a GPU that came without being initialised again
        """Open NVML; list its GPUs as well where the bus shows none, or may show GPUs that are not for this process."""
        self._lists_gpus = not known
        if self.is_open and not self._lost and self._lists_gpus:
            self.begin(self._list_gpus)
        else:
            self.open()

    def initialise(self) -> None:
        """Initialise NVML, and listen for errors before any GPU is opened."""
        try:
            import pynvml  # noqa: PLC0415  # it may be absent: the exporter runs without it
        except ImportError as error:
            raise DriverUnavailable("pynvml_not_installed", "pip install 'trainwarden[nvidia]' is missing") from error
        try:
            with calling(self.opening):
                pynvml.nvmlInit()
            self.needs_shut_down()
            self._activity_buffers = {}  # they are not those of a library that was initialised anew
            with calling("nvmlSystemGetDriverVersion"):
                self.version = text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            name = name_of(error.value)
            raise DriverUnavailable(name, f"NVML does not start: {name}") from error
        from trainwarden_exporter.collectors.gpu.nvml.events import XidEvents  # noqa: PLC0415  # imports pynvml

        events = self._events or XidEvents(self._xids)
        events.open()
        self._events = events
        if self._lists_gpus:
            self._list_gpus()

    def shut_down(self) -> None:
        """Shut NVML down: no handle is held after that."""
        import pynvml  # noqa: PLC0415  # it was imported when NVML was initialised

        try:
            with calling("nvmlShutdown"):
                pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.warning("NVML could not be shut down: %s", name_of(error.value))

    def close(self) -> None:
        """Release the events, every handle and the kernel's log."""
        if self._events is not None:
            self._events.close()
        super().close()
        self._kernel_log.close()

    def open_gpu(self, state: GpuState) -> OpenGpu:
        """Open a GPU by its bus address, register its events, identify it."""
        import pynvml  # noqa: PLC0415  # NVML is open

        enter("nvmlDeviceGetHandleByPciBusId_v2")
        try:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(state.bus)
        except pynvml.NVMLError as error:
            failure = failure_of(error)
            raise (LibraryDown if failure.effect is Effect.LIBRARY_DOWN else GpuDown)(failure.error) from error
        calls = self._calls(handle, state)
        uuid, minor = text(calls.call("nvmlDeviceGetUUID") or ""), calls.call("nvmlDeviceGetMinorNumber")
        info = {label: text(calls.call(function) or "") for label, function in _IDENTITY.items()}
        if self._events is not None:
            self._events.register(handle, state.bus)
        return OpenGpu(handle, uuid, minor, info)

    def fast_tier(self, handle: Any, state: GpuState) -> NvmlFastTier:
        """Return what reads utilization, memory, temperatures, power, clocks, NVLink traffic and activity."""
        from trainwarden_exporter.collectors.gpu.nvml.activity import Activity  # noqa: PLC0415  # imports pynvml
        from trainwarden_exporter.collectors.gpu.nvml.readings import NvmlFastTier  # noqa: PLC0415  # imports pynvml

        calls = self._calls(handle, state)
        return NvmlFastTier(calls, Activity(calls, self._activity_buffers, state.bus) if self._activity else None)

    def slow_tier(self, handle: Any, state: GpuState) -> NvmlSlowTier:
        """Return what reads ECC, remapped rows, PCIe, fabric, NVLink states and MIG instances."""
        from trainwarden_exporter.collectors.gpu.nvml.activity import Activity  # noqa: PLC0415  # imports pynvml
        from trainwarden_exporter.collectors.gpu.nvml.readings import NvmlSlowTier  # noqa: PLC0415  # imports pynvml

        calls = self._calls(handle, state)

        def activity(place: str, instance: int) -> Activity:
            return Activity(calls, self._activity_buffers, f"{state.bus}/{place}", instance)

        return NvmlSlowTier(calls, activity if self._activity else None)

    def visible(self, answering: int) -> int:
        """Return how many GPUs answer: NVML lists those that it cannot open, too."""
        return answering

    def node_tasks(self) -> Sequence[NodeTask]:
        """Return what waits for events, once NVML was open."""
        return [] if self._events is None else [NodeTask("events", self._events.interval, self._events.read)]

    def add_to_node(self, families: Families, states: Sequence[GpuState]) -> None:
        """Add the errors of NVML's events and of the kernel's log, each counted once."""
        self._kernel_log.add_to(families, self.vendor)
        add_xids(families, self._xids, {state.bus: state.labels for state in states})

    def _calls(self, handle: Any, state: GpuState) -> DriverCalls:
        import pynvml  # noqa: PLC0415  # NVML is open

        return DriverCalls(pynvml, handle, state.bus, state.read_errors, failure_of)

    def _list_gpus(self) -> None:
        """Find out which GPUs NVML lists, where the bus cannot be read or does not count."""
        import pynvml  # noqa: PLC0415  # NVML is open

        found: list[str] = []
        try:
            with calling("nvmlDeviceGetCount_v2"):
                count = pynvml.nvmlDeviceGetCount()
            for index in range(count):
                with calling("nvmlDeviceGetHandleByIndex_v2"):
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                with calling("nvmlDeviceGetPciInfo_v3"):
                    bus = bus_address(text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
                if bus is not None:
                    found.append(bus)
        except pynvml.NVMLError as error:
            log.warning("NVML does not list its GPUs: %s", text(error))
        self.found = tuple(found)
