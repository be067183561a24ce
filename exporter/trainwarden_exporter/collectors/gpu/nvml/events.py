"""Errors that NVML reports as events."""

from __future__ import annotations

import ctypes
import logging
from typing import TYPE_CHECKING, Any

import pynvml

from trainwarden_exporter.collectors.gpu.nvml.codes import name_of
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.nvml.xid import XidCounter

log = logging.getLogger(__name__)

# NVML keeps events until they are read. A longer wait would delay the release of the GPUs.
INTERVAL_SECONDS = 1.0
WAIT_MILLISECONDS = 10
MAX_EVENTS = 100


class XidEvents:
    """One set of events for all GPUs. `open`, `register` and `read` are called in different threads."""

    interval = INTERVAL_SECONDS

    def __init__(self, counter: XidCounter) -> None:
        self._counter = counter
        self._set: Any = None
        self._buses: dict[int, str] = {}
        self._fails = False

    def open(self) -> None:
        """Create the set; where that fails, the kernel's log is the only source of errors."""
        self._buses = {}
        try:
            with calling("nvmlEventSetCreate"):
                self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._set = None
            log.warning("NVML reports no errors: %s", name_of(error.value))

    def register(self, handle: Any, bus: str) -> None:
        """Have the set receive the errors of one GPU."""
        if self._set is None:
            return
        try:
            with calling("nvmlDeviceRegisterEvents"):
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
        except pynvml.NVMLError as error:
            log.warning("GPU %s: NVML does not report its errors: %s", bus, name_of(error.value))
            return
        self._buses = {**self._buses, _address(handle): bus}

    def read(self) -> tuple[()]:
        """Count the errors in the set; return no series, for the node's task has them."""
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
                self._counter.report_event(bus, int(event.eventData))
        return ()

    def close(self) -> None:
        """Free the set."""
        events, self._set = self._set, None
        if events is not None:
            try:
                with calling("nvmlEventSetFree"):
                    pynvml.nvmlEventSetFree(events)
            except pynvml.NVMLError as error:
                log.warning("NVML does not free its events: %s", name_of(error.value))

    def _failed(self, code: int) -> None:
        # A lost GPU fails the set of all GPUs; the kernel's log still reports their errors.
        fails = code != pynvml.NVML_ERROR_TIMEOUT
        if fails and not self._fails:
            log.warning("NVML does not report errors now: %s", name_of(code))
        self._fails = fails


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
