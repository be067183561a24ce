"""One GPU: opened when it can be, asked in two tiers, and its state told to the rest of the node."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pynvml

from trainwarden_exporter.collectors.gpu.nvidia.calls import Calls, GpuDown, LibraryDown
from trainwarden_exporter.collectors.gpu.nvidia.fast import FastTier
from trainwarden_exporter.collectors.gpu.nvidia.library import LIBRARY_DOWN, error_word, text
from trainwarden_exporter.collectors.gpu.nvidia.slow import SlowTier
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling, enter

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.collectors.gpu.nvidia.library import Library
    from trainwarden_exporter.collectors.gpu.state import DriverTime, GpuState
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

# What is read while the GPU is not open waits for this long at its first time: the two tiers begin at once.
OPEN_SECONDS = 2.0
# To open a GPU that is broken may take the driver seconds, in which the others wait.
REOPEN_SECONDS, MAX_REOPEN_SECONDS = 1.0, 30.0


class Gpu:
    """Samples of one GPU. `fast` runs in one thread, `slow` in another, and neither waits for the other's calls.

    Args:
        state: what it finds out.
        library: NVML.
        spent: where the time of its samples goes.
        opened: called with the handle and the state after the GPU was opened, in the thread of `fast`.
        slow_interval: how old what `slow` returns may be, seconds.
        timeout: of a sample, seconds.
    """

    def __init__(
        self,
        state: GpuState,
        library: Library,
        spent: DriverTime,
        opened: Callable[[Any, GpuState], None],
        *,
        slow_interval: float,
        timeout: float,
    ) -> None:
        self._slow_interval = slow_interval
        self._patience = min(OPEN_SECONDS, timeout / 2)
        self._state = state
        self._library = library
        self._spent = spent
        self._tell = opened
        self._open: tuple[int, Any] | None = None
        self._fast: FastTier | None = None
        self._slow: tuple[Any, SlowTier] | None = None
        self._read_slow: tuple[float, list[Family]] | None = None
        self._pause = 0.0
        self._not_before = 0.0

    def fast(self) -> list[Family]:
        """Return what changes from second to second; nothing of a GPU that is down."""
        begun = self._state.busy = time.monotonic()
        families = Families()
        try:
            self._sample(families)
        except GpuDown as down:
            self._down(down)
            return []
        finally:
            self._state.busy = None
            self._state.attempted.set()
            self._spent.add("fast", time.monotonic() - begun)
        return families.collected()

    def slow(self) -> list[Family]:
        """Return what is slow to read or seldom changes, as it was read last; nothing of a GPU that is down."""
        with calling("waiting for the GPU to be opened"):
            self._state.attempted.wait(self._patience)
        open_now = self._open
        if open_now is None or self._state.error is not None:
            self._read_slow = None
            return []
        begun = time.monotonic()
        if self._read_slow is not None and begun - self._read_slow[0] < self._slow_interval:
            return self._read_slow[1]
        if self._slow is None or self._slow[0] is not open_now or self._slow[1].calls.outdated():
            calls = Calls(open_now[1], self._state.bus, self._state.read_errors)
            self._slow = (open_now, SlowTier(calls))
        families = Families()
        try:
            self._slow[1].read(families, gpu=self._state.index, uuid=self._state.uuid)
        except GpuDown:
            return []  # the fast tier finds it too, and says so
        finally:
            self._spent.add("slow", time.monotonic() - begun)
        self._read_slow = (begun, families.collected())
        return self._read_slow[1]

    def _sample(self, families: Families) -> None:
        if self._open is None or self._open[0] != self._library.generation:
            self._open = (self._library.generation, self._opened())
            self._fast = None
        if self._fast is None or self._fast.calls.outdated():
            self._fast = FastTier(Calls(self._open[1], self._state.bus, self._state.read_errors))
        tier = self._fast
        begun, answered = time.monotonic(), tier.calls.answered
        reading = tier.read(families, gpu=self._state.index, uuid=self._state.uuid)
        if tier.calls.answered == answered:
            raise GpuDown("no_answer")
        if self._state.error is not None:
            log.info("GPU %s answers again", self._state.bus)
        self._state.good, self._state.error = (begun, reading), None
        self._pause = 0.0

    def _opened(self) -> Any:
        if self._state.error is not None and time.monotonic() < self._not_before:
            raise GpuDown(self._state.error)
        self._pause = min(2 * self._pause + REOPEN_SECONDS, MAX_REOPEN_SECONDS)
        self._not_before = time.monotonic() + self._pause
        enter("nvmlDeviceGetHandleByPciBusId_v2")
        try:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(self._state.bus)
        except pynvml.NVMLError as error:
            kind = LibraryDown if error.value in LIBRARY_DOWN else GpuDown
            raise kind(error_word(error.value)) from error
        calls = Calls(handle, self._state.bus, self._state.read_errors)
        uuid = calls.ask("nvmlDeviceGetUUID")
        self._state.uuid = text(uuid) if uuid else self._state.uuid
        self._state.info = {
            label: text(calls.ask(name) or "")
            for label, name in (
                ("model", "nvmlDeviceGetName"),
                ("serial", "nvmlDeviceGetSerial"),
                ("vbios", "nvmlDeviceGetVbiosVersion"),
            )
        }
        self._tell(handle, self._state)
        return handle

    def _down(self, down: GpuDown) -> None:
        word = str(down)
        if isinstance(down, LibraryDown):
            self._library.lost.set()
        if self._state.error != word:
            log.warning("GPU %s is down: %s", self._state.bus, word)
        # A handle from before a reset is good for nothing.
        self._state.error, self._open = word, None
