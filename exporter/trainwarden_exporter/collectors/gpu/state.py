"""The state of one GPU, as its samples leave it and the sums of the node read it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.calls import NO_ANSWER
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Share of its own deadline that a sample waits for what it needs: for the library, for the first sample of each GPU.
WAIT_SHARE = 0.8


@dataclass(frozen=True)
class GpuReading:
    """The last good sample of a GPU for the totals of the node; None where it has no value.

    Attributes:
        utilization: ratio 0..1.
        power: watts.
        temperature: of the hottest sensor, degrees Celsius.
        memory_used: bytes.
    """

    utilization: float | None = None
    power: float | None = None
    temperature: float | None = None
    memory_used: float | None = None


@dataclass
class GpuState:
    """One GPU of the roster, lost or not. Times are monotonic.

    Attributes:
        bus: its address, 0000:3b:00.0.
        labels: of every series of the GPU: its index in the roster, and its uuid, which is empty until it was opened.
        info: the labels of `gpu_info` that are read from an open GPU.
        error: why the last sample found it down; None after a good one.
        good: when the last good sample was begun, and its values.
        busy: since when a sample is being taken; None between two.
        attempted: set after the first sample.
        attempted_slow: set after the first sample of the slow tier.
        read_errors: failed calls of a GPU that answers others, by error.
    """

    bus: str
    labels: dict[str, str]
    info: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    good: tuple[float, GpuReading] | None = None
    busy: float | None = None
    attempted: threading.Event = field(default_factory=threading.Event)
    attempted_slow: threading.Event = field(default_factory=threading.Event)
    read_errors: dict[str, int] = field(default_factory=dict)

    def why_down(self, now: float, timeout: float, fresh_seconds: float) -> str | None:
        """Return why it is down, as a value of the label `error`: its sample failed, hangs, or is too old."""
        if self.busy is not None and now - self.busy > timeout:
            return NO_ANSWER
        if self.error is not None:
            return self.error
        if self.good is None or now - self.good[0] > fresh_seconds:
            return NO_ANSWER
        return None


def wait_for_first_samples(attempted: Iterable[threading.Event], timeout: float) -> None:
    """Wait until each GPU was sampled once, at most for most of `timeout` (seconds), the deadline of the caller."""
    deadline = time.monotonic() + WAIT_SHARE * timeout
    with calling("waiting for the first sample of each GPU"):
        for event in attempted:
            event.wait(max(deadline - time.monotonic(), 0.0))
