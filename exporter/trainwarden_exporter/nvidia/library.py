"""NVML as a whole: opened, closed, and what its return codes are called."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from trainwarden_exporter.sampling.calls import calling

log = logging.getLogger(__name__)

ERRORS = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    18: "driver_library_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    999: "unknown",
}
NOT_FOUND = 6
INVALID_ARGUMENT, NO_PERMISSION = 2, 4
# It, or this driver, does not have it, or not of this kind: a link that it has not got, a field that is too new for it.
UNSUPPORTED = frozenset({INVALID_ARGUMENT, 3, 13, 25, 26})
# The GPU is there no more, or answers nothing until it is reset.
GPU_DOWN = frozenset({10, 15, 16, 28})
# The whole library has lost its driver.
LIBRARY_DOWN = frozenset({1, 9, 18})
# Where the driver is not loaded, each attempt asks a setuid helper to load it.
RETRY_SECONDS = 30.0


class NvmlUnavailable(Exception):
    """No GPU can be asked; `error` is one word that says why."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error

    def again(self) -> NvmlUnavailable:
        """Return the same to be raised once more: one that is raised again and again keeps every traceback."""
        return NvmlUnavailable(self.error, str(self))


def error_word(code: int) -> str:
    """Return what a return code is called on the page."""
    return ERRORS.get(code, f"code_{code}")


class Library:
    """NVML in this process; handles are good for one `generation` of it."""

    def __init__(self) -> None:
        self.generation = 0
        self.driver = ""
        self.lost = threading.Event()
        self._open = False
        self._failure: tuple[float, NvmlUnavailable] | None = None

    def open(self) -> None:
        """Initialise NVML unless it is, again if its driver was lost; raises `NvmlUnavailable`."""
        if self._open and not self.lost.is_set():
            return
        if self._failure is not None and time.monotonic() - self._failure[0] < RETRY_SECONDS:
            raise self._failure[1].again()
        self.close()
        try:
            self._initialise()
        except NvmlUnavailable as error:
            self._failure = (time.monotonic(), error)
            raise
        self._failure, self._open = None, True
        self.lost.clear()
        self.generation += 1

    def close(self) -> None:
        """Shut NVML down: no handle is held after."""
        if not self._open:
            return
        import pynvml  # noqa: PLC0415  # it was imported when it was opened

        self._open = False
        try:
            with calling("nvmlShutdown"):
                pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.warning("NVML could not be shut down: %s", error_word(error.value))

    def _initialise(self) -> None:
        try:
            import pynvml  # noqa: PLC0415  # it may be absent: the exporter goes on without it
        except ImportError as error:
            raise NvmlUnavailable("pynvml_not_installed", "pip install 'trainwarden[nvidia]' is missing") from error
        try:
            with calling("nvmlInit_v2"):
                pynvml.nvmlInit()
            with calling("nvmlSystemGetDriverVersion"):
                self.driver = text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            word = error_word(error.value)
            raise NvmlUnavailable(word, f"NVML does not start: {word}") from error


def text(value: Any) -> str:
    """Return what NVML says as text: old versions of its wrapper give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
