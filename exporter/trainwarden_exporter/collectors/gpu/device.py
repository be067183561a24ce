"""The samples of one GPU, in two tiers."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.calls import NO_ANSWER, GpuDown, LibraryDown
from trainwarden_exporter.collectors.gpu.state import WAIT_SHARE
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.collectors.gpu.driver import FastTier, GpuDriver, OpenGpu, SlowTier
    from trainwarden_exporter.collectors.gpu.state import GpuState
    from trainwarden_exporter.collectors.gpu.sums import GpuSums
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

# How long the first sample of the slow tier waits for the fast tier to open the GPU: both tiers begin at once.
OPEN_SECONDS = 2.0
# Opening a broken GPU may take the driver seconds, in which the other GPUs wait: pause after the first failure.
REOPEN_SECONDS = 1.0


class DriverTime:
    """Seconds that samples took, by tier; both are there from the start, so that a rate sees the first sample."""

    def __init__(self) -> None:
        self._seconds = {"fast": 0.0, "slow": 0.0}
        self._lock = threading.Lock()

    def add(self, tier: str, seconds: float) -> None:
        """Add one sample."""
        with self._lock:
            self._seconds[tier] += seconds

    def totals(self) -> dict[str, float]:
        """Return the sums so far."""
        with self._lock:
            return dict(self._seconds)


class GpuDevice:
    """Samples of one GPU. `fast` runs in one thread, `slow` in another, and neither waits for the other's calls.

    Args:
        state: updated by each sample.
        driver: opens and reads the GPU.
        identified: called with the state and the GPU that was opened, before it is read: it may be another than before.
        spent: sums up the time of the samples.
        sums: over the GPUs of the node, to which the counters are added.
        slow_interval: how old the series of `slow` may be, seconds.
        timeout: of a sample, seconds.
    """

    def __init__(
        self,
        state: GpuState,
        driver: GpuDriver,
        identified: Callable[[GpuState, OpenGpu], None],
        spent: DriverTime,
        sums: GpuSums,
        *,
        slow_interval: float,
        timeout: float,
    ) -> None:
        self.state = state
        self._driver = driver
        self._identified = identified
        self._spent = spent
        self._sums = sums
        self._slow_interval = slow_interval
        self._timeout = timeout
        # The generation of the library that opened the GPU, its handle, what reads it.
        self._open: tuple[int, Any, FastTier] | None = None
        self._slow: tuple[Any, SlowTier] | None = None
        self._read_slow: tuple[float, list[Family]] | None = None
        self._pause = 0.0
        self._not_before = 0.0

    def fast(self) -> list[Family]:
        """Return what changes from second to second; nothing of a GPU that is down or suspended."""
        state = self.state
        begun = state.busy = time.monotonic()
        families = Families()
        try:
            if not self._driver.is_suspended(state.bus):
                error = self._driver.error(WAIT_SHARE * self._timeout)
                if error is not None:
                    raise GpuDown(error)
                with self._driver.used():
                    self._sample(families, begun)
        except GpuDown as down:
            self._down(down)
            return []
        finally:
            state.busy = None
            state.attempted.set()
            self._spent.add("fast", time.monotonic() - begun)
        self._sums.count(families)
        return families.collected()

    def slow(self) -> list[Family]:
        """Return what is slow to read or seldom changes, the same object until `slow_interval` is over.

        Nothing of a GPU that is down or suspended.
        """
        with calling("waiting for the first sample of the GPU"):
            self.state.attempted.wait(min(OPEN_SECONDS, self._timeout / 2))
        try:
            return self._read_slow_tier()
        finally:
            self.state.attempted_slow.set()

    def _read_slow_tier(self) -> list[Family]:
        with self._driver.used():
            handle = self._handle()
            if handle is None or self.state.error is not None or self._driver.is_suspended(self.state.bus):
                self._read_slow = None
                return []
            begun = time.monotonic()
            if self._read_slow is not None and begun - self._read_slow[0] < self._slow_interval:
                return self._read_slow[1]
            if self._slow is None or self._slow[0] is not handle:
                self._slow = (handle, self._driver.slow_tier(handle, self.state))
            families = Families()
            try:
                self._slow[1].read(families, self.state.labels)
            except GpuDown:
                return []  # the next fast sample finds it down too, and records why
            finally:
                self._spent.add("slow", time.monotonic() - begun)
            self._sums.count(families)
            self._read_slow = (begun, families.collected())
            return self._read_slow[1]

    def _handle(self) -> Any:
        """Return the handle of the open GPU; None where it is not open in this generation of the library."""
        opened = self._open  # once: a fast sample that finds the GPU down replaces it
        if opened is None or not self._driver.is_open or opened[0] != self._driver.generation:
            return None
        return opened[1]

    def _sample(self, families: Families, begun: float) -> None:
        state, driver = self.state, self._driver
        if not driver.is_open:
            raise GpuDown(NO_ANSWER)  # it is being opened anew
        if self._open is None or self._open[0] != driver.generation:
            self._open = (driver.generation, *self._opened())
        tier = self._open[2]
        answered = tier.answered
        reading = tier.read(families, state.labels)
        if tier.answered == answered:
            raise GpuDown(tier.last_error)
        if state.error is not None:
            log.info("GPU %s answers again", state.bus)
        state.good, state.error = (begun, reading), None
        self._pause = 0.0

    def _opened(self) -> tuple[Any, FastTier]:
        state = self.state
        if state.error is not None and time.monotonic() < self._not_before:
            raise GpuDown(state.error)
        self._pause = min(2 * self._pause + REOPEN_SECONDS, self._driver.max_open_pause)
        self._not_before = time.monotonic() + self._pause
        opened = self._driver.open_gpu(state)
        self._identified(state, opened)
        return opened.handle, self._driver.fast_tier(opened.handle, state)

    def _down(self, down: GpuDown) -> None:
        error = str(down)
        if isinstance(down, LibraryDown):
            self._driver.reopen()
        if self.state.error != error:
            log.warning("GPU %s is down: %s", self.state.bus, error)
        # A handle from before a reset is invalid.
        self.state.error, self._open = error, None
