"""What the kernel knows of its clock: adjtimex(2), asked without changing anything, which needs no privilege."""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Any

_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000
_TIME_ERROR = 5
# fmt: off
_AFTER_STATUS = (
    "constant", "precision", "tolerance", "tv_sec", "tv_usec", "tick", "ppsfreq",
    "jitter", "shift", "stabil", "jitcnt", "calcnt", "errcnt", "stbcnt",
)
# fmt: on


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        *((name, ctypes.c_int if name == "shift" else ctypes.c_long) for name in _AFTER_STATUS),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


@dataclass(frozen=True)
class KernelClock:
    """The kernel's clock, as whoever disciplines it has told the kernel.

    Attributes:
        synchronized: somebody does, and has said so within the time that the kernel allows.
        offset: seconds that the clock is ahead, as far as the kernel itself corrects it; None where nobody says.
        max_error: seconds that it may be off at most; None where nobody says.
    """

    synchronized: bool
    offset: float | None
    max_error: float | None


def kernel_clock() -> KernelClock:
    """Ask the kernel; raises `OSError` if it refuses."""
    timex = _Timex(modes=0)
    state = _libc().adjtimex(ctypes.byref(timex))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"adjtimex: {os.strerror(number)}")
    return clock_of(state, timex.status, timex.offset, timex.maxerror)


def clock_of(state: int, status: int, offset: int, max_error: int) -> KernelClock:
    """Return what the answer means: `offset` in micro- or nanoseconds as `status` says, `max_error` in microseconds."""
    if state == _TIME_ERROR or status & _STA_UNSYNC:
        # What the fields hold then is the kernel's upper bound of 16 s, or what was true some time ago.
        return KernelClock(synchronized=False, offset=None, max_error=None)
    # The kernel means what is to be added.
    ahead = -offset / (1e9 if status & _STA_NANO else 1e6)
    return KernelClock(synchronized=True, offset=ahead + 0.0, max_error=max_error / 1e6)


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
