"""What is known of each GPU, whoever found it out: its threads write it, the summary of the node reads it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.collectors.gpu.node import Reading

# Share of its own deadline that a sample waits for what it needs: for the library, for the first sample of each GPU.
PATIENCE = 0.8


@dataclass
class GpuState:
    """One GPU, from when it was first seen until the process ends, lost or not. Times are monotonic.

    Attributes:
        index: its place on the bus when it was first seen, which is its index in nvidia-smi while all GPUs are well.
        bus: its address, 0000:3b:00.0.
        uuid: empty until it was opened.
        info: the labels of `gpu_info` that only an open GPU tells.
        error: why the last sample found it down; None after a good one.
        good: when the last good sample was taken, and what it said.
        busy: since when a sample is being taken; None between two.
        attempted: set after the first sample.
        read_errors: calls that failed while others did not, by the word for their code.
    """

    index: str
    bus: str
    uuid: str = ""
    info: dict[str, str] | None = None
    error: str | None = None
    good: tuple[float, Reading] | None = None
    busy: float | None = None
    attempted: threading.Event = field(default_factory=threading.Event)
    read_errors: dict[str, int] = field(default_factory=dict)

    def why_down(self, now: float, timeout: float, fresh_seconds: float) -> str | None:
        """Return one word that says why it is down: it says so, it hangs, or it has not been heard of for too long."""
        if self.busy is not None and now - self.busy > timeout:
            return "no_answer"
        if self.error is not None:
            return self.error
        if self.good is None or now - self.good[0] > fresh_seconds:
            return "no_answer"
        return None


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


def wait_for_first_samples(states: Iterable[GpuState], timeout: float) -> None:
    """Wait until each GPU was asked once, at most for most of `timeout` (seconds): who waits has that deadline too."""
    deadline = time.monotonic() + PATIENCE * timeout
    with calling("waiting for the first sample of each GPU"):
        for state in states:
            state.attempted.wait(max(deadline - time.monotonic(), 0.0))
