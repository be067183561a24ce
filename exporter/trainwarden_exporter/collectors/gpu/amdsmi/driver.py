"""amdsmi as a driver of the GPU collector: open it, list its GPUs and partitions, identify one; its return codes."""

from __future__ import annotations

import contextlib
import io
import logging
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.amdsmi.readings import AmdsmiFastTier, AmdsmiSlowTier
from trainwarden_exporter.collectors.gpu.amdsmi.values import AmdsmiCalls, text
from trainwarden_exporter.collectors.gpu.bus import AMD, bus_address
from trainwarden_exporter.collectors.gpu.calls import CallFailure, Effect, GpuDown
from trainwarden_exporter.collectors.gpu.driver import RETRY_SECONDS, DriverUnavailable, GpuDriver, OpenGpu
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu.state import GpuState

log = logging.getLogger(__name__)

# amdsmi_status_t in amdsmi.h: names on the page.
NAMES = {
    1: "invalid_argument",
    2: "not_supported",
    3: "not_implemented",
    6: "drm_error",
    7: "api_failed",
    8: "timeout",
    9: "retry",
    10: "no_permission",
    12: "io_error",
    14: "file_error",
    15: "out_of_resources",
    16: "internal_error",
    18: "init_error",
    30: "busy",
    31: "not_found",
    32: "not_initialized",
    34: "driver_not_loaded",
    40: "no_data",
    43: "unexpected_data",
    52: "file_not_found",
    54: "driver_restart_failed",
}
EFFECTS = {
    # The GPU or this driver lacks it.
    **dict.fromkeys((2, 3), Effect.UNSUPPORTED),
    # The library has lost its driver.
    **dict.fromkeys((32, 34), Effect.LIBRARY_DOWN),
}
NOT_INSTALLED, NOT_LOADED = "amdsmi_not_installed", "library_not_loaded"


class AmdsmiDriver(GpuDriver):
    """amdsmi, which lists GPUs and their partitions when it is initialised.

    Args:
        sysfs: where it is mounted.
        retry_seconds: pause between two attempts to open amdsmi.
    """

    vendor = "amd"
    pci_vendor = AMD
    library = "amdsmi"
    opening = "amdsmi_init"
    reopen_seconds = RETRY_SECONDS  # initialising takes long, and wakes suspended GPUs
    closes_under_calls = False
    missing_tools = frozenset({NOT_INSTALLED, NOT_LOADED})

    def __init__(self, sysfs: Path, retry_seconds: float = RETRY_SECONDS) -> None:
        super().__init__(retry_seconds)
        self._devices = sysfs / "bus/pci/devices"
        self._on_bus: set[str] = set()
        self._amdsmi: Any = None
        self._handles: dict[str, Any] = {}

    def look(self, on_bus: Collection[str], states: Collection[GpuState], *, known: bool) -> None:  # noqa: ARG002  # amdsmi lists its GPUs whenever it is opened
        """Open amdsmi unless every GPU is suspended; again where a GPU came to the bus, or none answers."""
        came = set(on_bus) - self._on_bus
        if self.is_open and (came or all(state.error is not None for state in states)):
            self.reopen()  # it lists a GPU that came, and finds a new driver, only when it is initialised
        self._on_bus = set(on_bus)
        if not on_bus or not all(self.is_suspended(bus) for bus in on_bus):
            self.open()

    def initialise(self) -> None:
        """Initialise amdsmi and list its GPUs."""
        amdsmi = self._amdsmi = _imported()
        try:
            amdsmi.amdsmi_init()
            self.needs_shut_down()
            handles = amdsmi.amdsmi_get_processor_handles()
        except Exception as error:
            name = failure_of(error).error
            raise DriverUnavailable(name, f"amdsmi does not start: {name}") from error
        found = {_address(amdsmi, handle): handle for handle in handles}
        self._handles = {address: handle for address, handle in found.items() if address is not None}
        self.found = tuple(self._handles)

    def shut_down(self) -> None:
        """Shut amdsmi down: no handle is held after that."""
        self._handles, self.found = {}, ()
        try:
            with calling("amdsmi_shut_down"):
                self._amdsmi.amdsmi_shut_down()
        except Exception as error:  # noqa: BLE001  # an old version may raise anything; it is over either way
            log.warning("amdsmi could not be shut down: %s", failure_of(error).error)

    def open_gpu(self, state: GpuState) -> OpenGpu:
        """Open and identify a GPU or partition that amdsmi listed."""
        handle = self._handles.get(state.bus)
        if handle is None:
            raise GpuDown("not_found")
        calls = self._calls(handle, state)
        uuid = text(calls.call("amdsmi_get_gpu_device_uuid") or "")
        asic, board = calls.table("amdsmi_get_gpu_asic_info"), calls.table("amdsmi_get_gpu_board_info")
        info = {
            "model": text(asic.get("market_name", "")) or text(board.get("product_name", "")),
            "serial": text(asic.get("asic_serial", "")) or text(board.get("product_serial", "")),
            "vbios": text(calls.table("amdsmi_get_gpu_vbios_info").get("version", "")),
            "driver": text(calls.table("amdsmi_get_gpu_driver_info").get("driver_version", "")),
        }
        return OpenGpu(handle, uuid, None, info)

    def fast_tier(self, handle: Any, state: GpuState) -> AmdsmiFastTier:
        """Return what reads utilization, power, energy, clocks, temperatures and memory."""
        return AmdsmiFastTier(self._calls(handle, state))

    def slow_tier(self, handle: Any, state: GpuState) -> AmdsmiSlowTier:
        """Return what reads the power limit, ECC, PCIe, XGMI, retired pages and throttling."""
        return AmdsmiSlowTier(self._calls(handle, state))

    def visible(self, answering: int) -> int | None:  # noqa: ARG002  # suspended GPUs are visible and do not answer
        """Return how many GPUs and partitions amdsmi lists; None before it was opened."""
        return len(self._handles) if self.is_open or self.failure is not None or self._opener.busy else None

    def is_suspended(self, bus: str) -> bool:
        """Return whether the kernel has suspended the GPU; a partition counts as the GPU that it is one of."""
        device = self._devices / bus
        if not device.exists():  # partitions have the functions of a device, of which the first alone is on the bus
            device = device.with_name(bus.rpartition(".")[0] + ".0")
        try:
            return (device / "power/runtime_status").read_text().strip() == "suspended"
        except OSError:
            return False

    def _calls(self, handle: Any, state: GpuState) -> AmdsmiCalls:
        return AmdsmiCalls(self._amdsmi, handle, state.bus, state.read_errors, failure_of)


def failure_of(error: Exception) -> CallFailure:
    """Return what an exception of amdsmi means; one without a return code comes from its own conversions."""
    code = getattr(error, "err_code", None)
    if not isinstance(code, int):
        return CallFailure(type(error).__name__, Effect.FAILED)
    return CallFailure(NAMES.get(code, f"code_{code}"), EFFECTS.get(code, Effect.FAILED))


def _address(amdsmi: Any, handle: Any) -> str | None:
    try:
        return bus_address(str(amdsmi.amdsmi_get_gpu_device_bdf(handle)))
    except Exception as error:  # noqa: BLE001  # one GPU that fails costs the others nothing
        log.warning("amdsmi does not return the address of one of its GPUs: %s", failure_of(error).error)
        return None


def _imported() -> Any:
    # amdsmi prints what it does not find, at each attempt, and the output of this process is for messages.
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            import amdsmi  # noqa: PLC0415  # it may be absent: the exporter runs without it
    except ModuleNotFoundError as error:
        name = NOT_INSTALLED if error.name == "amdsmi" else NOT_LOADED
        raise DriverUnavailable(name, f"amdsmi does not start: {name}") from error
    except Exception as error:  # without its library the import ends in KeyError, or in whatever comes next
        log.debug("amdsmi cannot be imported: %s", printed.getvalue().strip() or error)
        raise DriverUnavailable(NOT_LOADED, f"amdsmi does not start: {NOT_LOADED}") from error
    return amdsmi
