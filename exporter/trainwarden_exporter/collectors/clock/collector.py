"""Exports how far the clock is off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.clock import metrics
from trainwarden_exporter.collectors.clock.adjtimex import KernelClock, kernel_clock
from trainwarden_exporter.collectors.clock.chrony import chrony_offset
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.core.metric import Family

# What discipline does to a clock between two samples is far below this.
JUMP_SECONDS = 1.0


class ClockCollector:
    """Asks who keeps the clock, and watches it for jumps.

    Args:
        kernel: the kernel's answer.
        chrony: chronyd's: seconds ahead, None where it has none.
        now: the clock itself, Unix seconds.
        since_boot: one that never jumps, sleep included, seconds.
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
        self._booted: float | None = None
        self._jumps = 0
        self._jumped: float | None = None

    def collect(self) -> list[Family]:
        """Return the families as they are now."""
        self._look_for_a_jump()
        clock, chrony = self._kernel(), self._chrony()
        families = Families()
        families.add(metrics.CLOCK_SYNCHRONIZED, clock.synchronized)
        # Under chronyd the kernel's own offset is always about zero.
        offset, source = (clock.offset, "kernel") if chrony is None else (chrony, "chrony")
        families.add(metrics.CLOCK_OFFSET_SECONDS, offset, source=source)
        families.add(metrics.CLOCK_MAX_ERROR_SECONDS, clock.max_error)
        families.add(metrics.CLOCK_JUMPS_TOTAL, self._jumps)
        families.add(metrics.CLOCK_JUMP_LAST_TIMESTAMP_SECONDS, self._jumped)
        return families.collected()

    def _look_for_a_jump(self) -> None:
        now = self._now()
        booted, before = now - self._since_boot(), self._booted
        self._booted = booted
        if before is not None and abs(booted - before) > JUMP_SECONDS:
            self._jumps += 1
            self._jumped = now
