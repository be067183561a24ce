"""What all EFA devices of the node make together."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.rdma.efa import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.core.metric import Families, Metric

_SUMMED = {
    "tx_bytes": metrics.EFA_NODE_TX_BYTES_TOTAL,
    "rx_bytes": metrics.EFA_NODE_RX_BYTES_TOTAL,
    "retrans_bytes": metrics.EFA_NODE_RETRANSMITTED_BYTES_TOTAL,
}


class NodeTotals:
    """Sums that never fall: not when a device goes, not when it comes back and counts anew, nor when it hangs.

    They begin with 0 when a counter is first seen: what a device had counted before would look like a burst.

    Args:
        keep: for how long a device's links are believed, seconds.
        monotonic: the clock.
    """

    def __init__(self, keep: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._keep = keep
        self._monotonic = monotonic
        self._last: dict[tuple[str, str], int] = {}
        self._sums: dict[Metric, int] = {}
        self._down: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def count(self, device: str, file: str, counter: str, value: int) -> None:
        """Take in what one counter of a device says."""
        total = _SUMMED.get(counter)
        if total is None:
            return
        with self._lock:
            before = self._last.get((device, file), value)
            self._last[device, file] = value
            self._sums[total] = self._sums.get(total, 0) + (value - before if value >= before else value)

    def down(self, device: str, ports: int) -> None:
        """Take in how many ports of a device are down."""
        with self._lock:
            self._down[device] = (ports, self._monotonic())

    def forget(self, device: str) -> None:
        """The device is gone: its links are no more."""
        with self._lock:
            self._down.pop(device, None)

    def add_to(self, families: Families) -> None:
        """Add what is known; nothing of what no device has told."""
        now = self._monotonic()
        with self._lock:
            fresh = [ports for ports, since in self._down.values() if now - since <= self._keep]
            sums = dict(self._sums)
        families.add(metrics.EFA_NODE_PORTS_DOWN, sum(fresh) if fresh else None)
        for total, value in sums.items():
            families.add(total, value)
