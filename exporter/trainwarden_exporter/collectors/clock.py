"""How far the clock of this node is off: adjtimex(2), chronyd where it runs, and a watch for jumps."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden.clients import process
from trainwarden_exporter.core.metric import Families, counter, gauge
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.spec import Context

CLOCK_SYNCHRONIZED = gauge(
    "clock_synchronized",
    "",
    "0/1",
    "1 if a service keeps the clock, and has reported that to the kernel lately.",
    "adjtimex(2)",
    "clock_synchronized == 0",
)
CLOCK_OFFSET_SECONDS = gauge(
    "clock_offset_seconds",
    "source",
    "seconds",
    "How far the clock is ahead of its reference, below 0 behind; absent where it is unknown.",
    "chronyc tracking, else adjtimex(2)",
    "abs(clock_offset_seconds) > 1",
)
CLOCK_MAX_ERROR_SECONDS = gauge(
    "clock_max_error_seconds",
    "",
    "seconds",
    "How far the clock may be off at most, by the estimate of the service that keeps it; absent without one.",
    "adjtimex(2)",
    "clock_max_error_seconds > 0.5",
)
CLOCK_JUMPS_TOTAL = counter(
    "clock_jumps_total",
    "",
    "",
    "How often the clock was set by more than a second since the exporter started: ages of heartbeats jump with it.",
    "clock_gettime(2): CLOCK_REALTIME against CLOCK_BOOTTIME",
    "increase(clock_jumps_total[15m]) > 0",
)
CLOCK_JUMP_LAST_TIMESTAMP_SECONDS = gauge(
    "clock_jump_last_timestamp_seconds",
    "",
    "Unix seconds",
    "When the exporter saw the last of them; absent where there was none.",
    "clock_gettime(2)",
    "time() - clock_jump_last_timestamp_seconds < 900",
)

# Clock discipline between two samples moves a clock by far less.
JUMP_SECONDS = 1.0
CHRONYC_SECONDS = 2.0
_CHRONYC = ("chronyc", "-c", "-n", "tracking")
_SYSTEM_TIME, _LEAP_STATUS, _FIELDS = 4, 13, 14  # of its answer, comma-separated
_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000
_TIME_ERROR = 5


class KernelClock(NamedTuple):
    """The kernel's clock, by adjtimex(2).

    Attributes:
        synchronized: a time daemon disciplines it, and has updated it within the time that the kernel allows.
        offset: seconds that the clock is ahead, as far as the kernel itself corrects it; None where unknown.
        max_error: seconds that it may be off at most; None where unknown.
    """

    synchronized: bool
    offset: float | None
    max_error: float | None


def kernel_clock() -> KernelClock:
    """Read the kernel's clock without changing it, which needs no privilege; raise `OSError` if the kernel refuses."""
    timex = Timex(modes=0)
    state = _libc().adjtimex(ctypes.byref(timex))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"adjtimex: {os.strerror(number)}")
    return clock_of(state, timex.status, timex.offset, timex.maxerror)


def clock_of(state: int, status: int, offset: int, max_error: int) -> KernelClock:
    """Interpret an answer: `offset` in micro- or nanoseconds depending on `status`, `max_error` in microseconds."""
    if state == _TIME_ERROR or status & _STA_UNSYNC:
        # The fields then hold the kernel's upper bound of 16 s, or old values.
        return KernelClock(synchronized=False, offset=None, max_error=None)
    # The kernel's offset is what is to be added.
    ahead = -offset / (1e9 if status & _STA_NANO else 1e6)
    return KernelClock(synchronized=True, offset=ahead + 0.0, max_error=max_error / 1e6)


def chrony_offset(seconds: float = CHRONYC_SECONDS) -> float | None:
    """Return by how many seconds the clock is ahead; None where chronyd does not run or is not synchronized."""
    if shutil.which(_CHRONYC[0]) is None:
        return None
    try:
        with calling("chronyc"):
            done = process.run(_CHRONYC, seconds, environment=os.environ)
    except process.ProcessError:
        return None
    return parse_tracking(done.output.decode("utf-8", "replace")) if done.status == 0 else None


def parse_tracking(answer: str) -> float | None:
    """Return the offset in an answer of `chronyc -c tracking`, as `chrony_offset`."""
    fields = answer.strip().split(",")
    if len(fields) < _FIELDS or fields[_LEAP_STATUS] == "Not synchronised":
        return None
    try:
        behind = float(fields[_SYSTEM_TIME])
    except ValueError:
        return None
    return -behind + 0.0 if math.isfinite(behind) else None


class ClockCollector:
    """Exports the clock's offset and counts its jumps.

    Args:
        kernel: reads the kernel's clock.
        chrony: reads chronyd's offset: seconds ahead, None where it has none.
        now: the clock itself, Unix seconds.
        since_boot: a clock that never jumps, sleep included, seconds.
    """

    name = "clock"

    def __init__(
        self,
        kernel: Callable[[], KernelClock] = kernel_clock,
        chrony: Callable[[], float | None] = chrony_offset,
        now: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._kernel = kernel
        self._chrony = chrony
        self._now = now
        self._since_boot = since_boot
        self._boot_time: float | None = None
        self._jumps = 0
        self._last_jump: float | None = None

    def collect(self) -> list[Family]:
        """Return the families as they are now."""
        self._detect_jump()
        clock, chrony = self._kernel(), self._chrony()
        families = Families()
        families.add(CLOCK_SYNCHRONIZED, clock.synchronized)
        # Under chronyd the kernel's own offset is always about zero.
        offset, source = (clock.offset, "kernel") if chrony is None else (chrony, "chrony")
        families.add(CLOCK_OFFSET_SECONDS, offset, source=source)
        families.add(CLOCK_MAX_ERROR_SECONDS, clock.max_error)
        families.add(CLOCK_JUMPS_TOTAL, self._jumps)
        families.add(CLOCK_JUMP_LAST_TIMESTAMP_SECONDS, self._last_jump)
        return families.collected()

    def _detect_jump(self) -> None:
        """Count a jump if the time of boot, computed from both clocks, has moved since the last sample."""
        now = self._now()
        boot_time, before = now - self._since_boot(), self._boot_time
        self._boot_time = boot_time
        if before is not None and abs(boot_time - before) > JUMP_SECONDS:
            self._jumps += 1
            self._last_jump = now


class Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("tv_sec", ctypes.c_long),
        ("tv_usec", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def create(context: Context) -> Sampler:
    """Return the sampler of the clock."""
    task = single_task(ClockCollector(), context.interval, context.timeout)
    return Sampler(task, scrape_times=ScrapeTimes())


SPEC = CollectorSpec(
    name="clock", help="how far the clock is off", interval="15s", timeout="5s", create=create, follows_scrapes=True
)
