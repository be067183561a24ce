"""The library amdsmi as a whole: opened in a thread of its own, for that may never end; what its codes are called."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import bus_address
from trainwarden_exporter.collectors.gpu.opener import Opener
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

ERRORS = {
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
# It, or this driver, does not have it.
UNSUPPORTED = frozenset({2, 3})
# The whole library has lost its driver.
LIBRARY_DOWN = frozenset({32, 34})
# Of the tools, not of the GPUs: nothing is known of those then.
NOT_INSTALLED, NOT_LOADED = "amdsmi_not_installed", "library_not_loaded"
OPENING = "amdsmi_init"
# Between two attempts, good or bad: opening it takes long, and wakes GPUs.
RETRY_SECONDS = 30.0


class AmdsmiUnavailable(Exception):
    """No GPU can be asked; the message is one word that says why."""


def error_word(error: BaseException) -> str:
    """Return what an exception of amdsmi is called on the page."""
    code = getattr(error, "err_code", None)
    return ERRORS.get(code, f"code_{code}") if isinstance(code, int) else type(error).__name__


class Library:
    """amdsmi in this process. `handles` are those of the GPUs that it found, by bus address, while it is open."""

    def __init__(self) -> None:
        self.handles: dict[str, Any] = {}
        self._failure: str | None = None
        self.amdsmi: Any = None
        self._open = False
        self._lost = False
        self._opener = Opener("amdsmi", OPENING)
        self._tried_at: float | None = None
        self._users = 0
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """GPUs can be asked."""
        return self._open

    @property
    def failure(self) -> str | None:
        """Why no GPU can be asked, one word; None while they can, and before anybody wanted to."""
        if self._open or self._failure is not None:
            return self._failure
        return f"{self._opener.call}_hangs" if self._opener.busy else None

    def open(self) -> None:
        """Begin to open it unless it is open, or was tried only just now. Comes back at once."""
        with self._lock:
            if self._opener.busy:
                return
            if self._open and not self._lost:
                return
            if self._tried_at is not None and time.monotonic() - self._tried_at < RETRY_SECONDS:
                return
            if self._users:
                return  # who is in the middle of a call would lose what it calls
            self._opener.begin(self._try_to_open)

    def wait(self, seconds: float) -> bool:
        """Wait until it is known whether it opens, or opening has taken so long; False if it goes on."""
        return self._opener.wait(seconds)

    def follow(self) -> None:
        """Wait until it is known whether it opens; meanwhile this thread counts as being in the call that hangs."""
        self._opener.follow()

    def reopen(self) -> None:
        """Open it anew next time: its driver was lost, or GPUs came."""
        self._lost = True

    @contextlib.contextmanager
    def used(self, bus: str) -> Iterator[Any]:
        """Give the handle of a GPU, None where it has none; while it is used the library is not shut down."""
        with self._lock:
            self._users += 1
        try:
            yield self.handles.get(bus)
        finally:
            with self._lock:
                self._users -= 1

    def close(self) -> None:
        """Shut it down, unless somebody hangs in a call."""
        with self._lock:
            if not self._open or self._users:
                return
            self._open, self.handles = False, {}
        try:
            with calling("amdsmi_shut_down"):
                self.amdsmi.amdsmi_shut_down()
        except Exception as error:  # noqa: BLE001  # an old version may raise anything; it is over either way
            log.warning("amdsmi could not be shut down: %s", error_word(error))

    def _try_to_open(self) -> None:
        self.close()
        self._lost = False
        try:
            self.handles = self._opened()
        except AmdsmiUnavailable as error:
            self._failure = str(error)
        else:
            self._failure, self._open = None, True
        self._tried_at = time.monotonic()

    def _opened(self) -> dict[str, Any]:
        amdsmi = self.amdsmi = _imported()
        try:
            amdsmi.amdsmi_init()
            handles = amdsmi.amdsmi_get_processor_handles()
        except Exception as error:
            raise AmdsmiUnavailable(error_word(error)) from error
        found = {_address(amdsmi, handle): handle for handle in handles}
        return {address: handle for address, handle in found.items() if address is not None}


def _address(amdsmi: Any, handle: Any) -> str | None:
    try:
        return bus_address(str(amdsmi.amdsmi_get_gpu_device_bdf(handle)))
    except Exception as error:  # noqa: BLE001  # one GPU that says nothing costs the others nothing
        log.warning("amdsmi does not say where one of its GPUs is: %s", error_word(error))
        return None


def _imported() -> Any:
    # It prints what it does not find, at each attempt, and the output of this process is for messages.
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            import amdsmi  # noqa: PLC0415  # it may be absent: the exporter goes on without it
    except ModuleNotFoundError as error:
        raise AmdsmiUnavailable(NOT_INSTALLED if error.name == "amdsmi" else NOT_LOADED) from error
    except Exception as error:  # without its library importing it ends in KeyError, or in whatever comes next
        log.debug("amdsmi cannot be imported: %s", said.getvalue().strip() or error)
        raise AmdsmiUnavailable(NOT_LOADED) from error
    return amdsmi
