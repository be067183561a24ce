"""One GPU: asked in two tiers once the library is open, left asleep while it sleeps."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.amd.calls import Calls, GpuDown, LibraryDown
from trainwarden_exporter.collectors.gpu.amd.fast import read_fast
from trainwarden_exporter.collectors.gpu.amd.slow import SlowTier
from trainwarden_exporter.collectors.gpu.amd.values import word
from trainwarden_exporter.collectors.gpu.state import PATIENCE, GpuState
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu.amd.library import Library
    from trainwarden_exporter.collectors.gpu.state import DriverTime
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

# The two tiers begin at once, and the first tells the second that the GPU answers.
OPEN_SECONDS = 2.0


class Gpu:
    """Samples of one GPU. `fast` runs in one thread, `slow` in another, and neither waits for the other's calls.

    Args:
        state: what it finds out.
        device: its folder in sysfs; of a partition, that of the GPU it is one of.
        library: amdsmi.
        spent: where the time of its samples goes.
        timeout: of a sample, seconds.
    """

    def __init__(self, state: GpuState, device: Path, library: Library, spent: DriverTime, timeout: float) -> None:
        self.state = state
        self._device = device
        self._library = library
        self._spent = spent
        self._patience, self._share = min(OPEN_SECONDS, timeout / 2), PATIENCE * timeout
        self._answered = threading.Event()
        self._fast: tuple[Any, Calls] | None = None
        self._slow: tuple[Any, SlowTier] | None = None

    @property
    def asleep(self) -> bool:
        """Whether the kernel has put it to sleep: to ask it anything would wake it."""
        return is_asleep(self._device)

    def fast(self) -> list[Family]:
        """Return what changes from second to second; nothing of a GPU that is down or asleep."""
        state = self.state
        begun = state.busy = time.monotonic()
        families = Families()
        try:
            if not self.asleep:
                self._library.wait(self._share)
                with self._library.used(state.bus) as handle:
                    self._sample(families, handle, begun)
        except GpuDown as down:
            self._down(down)
            return []
        finally:
            state.busy = None
            state.attempted.set()
            self._spent.add("fast", time.monotonic() - begun)
        return families.collected()

    def slow(self) -> list[Family]:
        """Return what is slow to read or seldom changes; nothing of a GPU that is down or asleep."""
        if self._library.failure is None and not self.asleep:
            with calling("waiting for the first sample of the GPU"):
                self._answered.wait(self._patience)
        begun = time.monotonic()
        families = Families()
        with self._library.used(self.state.bus) as handle:
            if handle is None or self.state.error is not None or not self._answered.is_set() or self.asleep:
                return []
            if self._slow is None or self._slow[0] is not handle:
                self._slow = (handle, SlowTier(self._calls(handle)))
            try:
                self._slow[1].read(families, gpu=self.state.index, uuid=self.state.uuid)
            except GpuDown:
                return []  # the fast tier finds it too, and says so
            finally:
                self._spent.add("slow", time.monotonic() - begun)
        return families.collected()

    def _sample(self, families: Families, handle: Any, begun: float) -> None:
        if handle is None:
            raise GpuDown(self._library.failure or "not_found")
        if self._fast is None or self._fast[0] is not handle:
            calls = self._calls(handle)
            self._identify(calls)
            self._fast = (handle, calls)
        calls = self._fast[1]
        answered = calls.answered
        reading = read_fast(families, calls, gpu=self.state.index, uuid=self.state.uuid)
        if calls.answered == answered:
            raise GpuDown(calls.last_error)
        if self.state.error is not None:
            log.info("GPU %s answers again", self.state.bus)
        self.state.good, self.state.error = (begun, reading), None
        self._answered.set()

    def _identify(self, calls: Calls) -> None:
        self.state.uuid = word(calls.ask("amdsmi_get_gpu_device_uuid") or self.state.uuid)
        asic, board = calls.table("amdsmi_get_gpu_asic_info"), calls.table("amdsmi_get_gpu_board_info")
        vbios = calls.table("amdsmi_get_gpu_vbios_info")
        self.state.info = {
            "model": word(asic.get("market_name", "")) or word(board.get("product_name", "")),
            "serial": word(asic.get("asic_serial", "")) or word(board.get("product_serial", "")),
            "vbios": word(vbios.get("version", "")),
            "driver": word(calls.table("amdsmi_get_gpu_driver_info").get("driver_version", "")),
        }

    def _calls(self, handle: Any) -> Calls:
        return Calls(self._library.amdsmi, handle, self.state.bus, self.state.read_errors)

    def _down(self, down: GpuDown) -> None:
        error = str(down)
        if isinstance(down, LibraryDown):
            self._library.reopen()
        if self.state.error != error:
            log.warning("GPU %s says nothing: %s", self.state.bus, error)
        self.state.error, self._fast = error, None


def is_asleep(device: Path) -> bool:
    """Tell whether the device of this folder is suspended."""
    try:
        return (device / "power/runtime_status").read_text().strip() == "suspended"
    except OSError:
        return False
