"""NVML as a whole: opened in a thread of its own, for that may never end; what its return codes are called."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import bus_address
from trainwarden_exporter.collectors.gpu.opener import Opener
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable

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
OPENING = "nvmlInit_v2"
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
    """NVML in this process, opened in a thread of its own; handles are good for one `generation` of it.

    Args:
        opened: called in that thread before anybody else learns that it is open.

    Attributes:
        driver: its version, as it was told last.
        found: the bus addresses of the GPUs that NVML told of, see `open`.
        lost: to be set by who finds that the library has lost its driver.
        failure: why the last attempt failed that is over; None after a good one, and before the first.
    """

    def __init__(self, opened: Callable[[], None]) -> None:
        self.generation = 0
        self.driver = ""
        self.found: tuple[str, ...] = ()
        self.lost = threading.Event()
        self.failure: NvmlUnavailable | None = None
        self._tell = opened
        self._opener = Opener("nvml", OPENING)
        self._open = False
        self._failed_at = 0.0

    def open(self, *, find: bool) -> None:
        """Begin to initialise NVML unless it is, again if its driver was lost. Comes back at once.

        Args:
            find: ask it as well which GPUs there are.
        """
        if self._opener.busy:
            return
        if self._open and self.failure is None and not self.lost.is_set():
            if find:
                self._opener.begin(self._find)
        elif self.failure is None or time.monotonic() - self._failed_at >= RETRY_SECONDS:
            self._opener.begin(lambda: self._try_to_open(find=find))

    def wait(self, seconds: float) -> bool:
        """Wait until it is known whether it opens, or opening has taken so long; False if it goes on."""
        return self._opener.wait(seconds)

    def follow(self) -> None:
        """Wait until it is known whether it opens; meanwhile this thread counts as being in the call that hangs."""
        self._opener.follow()

    def error(self, seconds: float) -> str | None:
        """Return one word that says why no GPU can be asked; None while they can. Waits as `wait` does."""
        if not self._opener.wait(seconds):
            return f"{self._opener.call}_hangs"
        return self.failure.error if self.failure is not None else None

    def close(self) -> None:
        """Shut NVML down: no handle is held after. While opening it hangs this does as well, for it may hold some."""
        self._opener.wait()
        self._shut_down()

    def _try_to_open(self, *, find: bool) -> None:
        self._shut_down()
        try:
            self._initialise()
            self._tell()
        except NvmlUnavailable as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001  # whatever its wrapper raises is why no GPU can be asked
            self.failure = NvmlUnavailable(type(error).__name__, f"NVML does not start: {error}")
        else:
            self.failure = None
            self.lost.clear()
            self.generation += 1
            if find:
                self._find()
            return
        self._failed_at = time.monotonic()

    def _initialise(self) -> None:
        try:
            import pynvml  # noqa: PLC0415  # it may be absent: the exporter goes on without it
        except ImportError as error:
            raise NvmlUnavailable("pynvml_not_installed", "pip install 'trainwarden[nvidia]' is missing") from error
        try:
            with calling(OPENING):
                pynvml.nvmlInit()
            self._open = True
            with calling("nvmlSystemGetDriverVersion"):
                self.driver = text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            word = error_word(error.value)
            raise NvmlUnavailable(word, f"NVML does not start: {word}") from error

    def _shut_down(self) -> None:
        if not self._open:
            return
        import pynvml  # noqa: PLC0415  # it was imported when it was opened

        self._open = False
        try:
            with calling("nvmlShutdown"):
                pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.warning("NVML could not be shut down: %s", error_word(error.value))

    def _find(self) -> None:
        """Ask NVML which GPUs there are, where the bus cannot be read or is not to be believed."""
        import pynvml  # noqa: PLC0415  # the library is open

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
            log.warning("NVML does not say which GPUs there are: %s", text(error))
        self.found = tuple(found)


def text(value: Any) -> str:
    """Return what NVML says as text: old versions of its wrapper give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
