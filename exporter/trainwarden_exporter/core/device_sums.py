"""Sums of counters over the devices of a node."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trainwarden_exporter.core.metric import Families, Metric


class DeviceSums:
    """Sums over the devices of a node that never fall: not when a device vanishes, counts anew or hangs.

    They begin at 0 when a counter is first read: what a device had counted before would look like a burst. For several
    threads.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}
        self._sums: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._lock = threading.Lock()

    def count(self, counter: Hashable, value: float, metric: Metric, labels: tuple[str, ...] = ()) -> None:
        """Add what one counter of one device has grown by to a sum.

        Args:
            counter: which one it is, with its device.
            value: of the counter now.
            metric: of the sum.
            labels: values of the sum's labels, in their order.
        """
        with self._lock:
            before = self._last.get(counter, value)
            self._last[counter] = value
            key = (metric, labels)
            self._sums[key] = self._sums.get(key, 0) + (value - before if value >= before else value)

    def add_to(self, families: Families) -> None:
        """Add the sums; leave out what no device has reported."""
        with self._lock:
            sums = dict(self._sums)
        for (metric, labels), value in sums.items():
            families.add(metric, value, **dict(zip(metric.label_names, labels, strict=True)))
