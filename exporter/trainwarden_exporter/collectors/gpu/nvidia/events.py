"""What NVML tells of errors by itself."""

from __future__ import annotations

import ctypes
import logging
import time
from typing import TYPE_CHECKING, Any

import pynvml

from trainwarden_exporter.collectors.gpu.nvidia.library import error_word
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.nvidia.ledger import Ledger
    from trainwarden_exporter.collectors.gpu.state import GpuState

log = logging.getLogger(__name__)

SOURCE = "nvml"
# NVML keeps what it was not asked for yet. A longer wait would hold up whoever wants the GPUs released.
INTERVAL_SECONDS = 1.0
WAIT_MILLISECONDS = 10
MAX_EVENTS = 100


class Events:
    """One set of events for all GPUs. `open`, `register` and `read` are called in different threads."""

    interval = INTERVAL_SECONDS

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._set: Any = None
        self._buses: dict[int, str] = {}
        self._fails = False

    def open(self) -> None:
        """Make the set; where there are no events, the kernel's log has to do."""
        self._buses = {}
        try:
            with calling("nvmlEventSetCreate"):
                self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._set = None
            log.warning("NVML tells of no errors: %s", error_word(error.value))

    def register(self, handle: Any, state: GpuState) -> None:
        """Ask for the errors of one GPU."""
        if self._set is None:
            return
        try:
            with calling("nvmlDeviceRegisterEvents"):
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
        except pynvml.NVMLError as error:
            log.warning("GPU %s: NVML does not tell of its errors: %s", state.bus, error_word(error.value))
            return
        self._buses = {**self._buses, _address(handle): state.bus}

    def read(self) -> tuple[()]:
        """Count the errors that NVML has to tell; they are nobody's sample."""
        events, buses = self._set, self._buses
        if events is None or not buses:
            return ()
        for _ in range(MAX_EVENTS):
            try:
                with calling("nvmlEventSetWait_v2"):
                    event = pynvml.nvmlEventSetWait_v2(events, WAIT_MILLISECONDS)
            except pynvml.NVMLError as error:
                self._failed(error.value)
                break
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                bus = buses.get(_address(event.device), "")
                self._ledger.report(bus, int(event.eventData), time.time(), SOURCE)
        return ()

    def close(self) -> None:
        """Let go of the set."""
        events, self._set = self._set, None
        if events is not None:
            try:
                with calling("nvmlEventSetFree"):
                    pynvml.nvmlEventSetFree(events)
            except pynvml.NVMLError as error:
                log.warning("NVML keeps its events: %s", error_word(error.value))

    def _failed(self, code: int) -> None:
        # A GPU that is lost fails the set of all: then the kernel's log is what tells.
        fails = code != pynvml.NVML_ERROR_TIMEOUT
        if fails and not self._fails:
            log.warning("NVML does not tell of errors now: %s", error_word(code))
        self._fails = fails


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
