"""What is true at the moment of a scrape, of a collector that only has to look into memory."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.core.exposition import Encoder
from trainwarden_exporter.sampling.task import Status

if TYPE_CHECKING:
    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.sampling.task import Collector


class Live:
    """A member of a collection without a thread: each scrape asks the collector, which must neither wait nor raise."""

    def __init__(self, collector: Collector) -> None:
        self.name = collector.name
        self._collector = collector
        self._encoder = Encoder()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Nothing runs in the background."""

    def stop(self) -> None:
        """Nothing runs in the background."""

    def sample_once(self) -> None:
        """Nothing is sampled ahead."""

    def statuses(self) -> list[Status]:
        """Return that it is well."""
        return [Status(self.name, True, True, 0.0, time.time(), None)]

    def ready(self) -> list[tuple[Encoded, float]]:
        """Return what is true now."""
        with self._lock:
            return [(self._encoder.encode(self._collector.collect()), 0.0)]

    def release(self) -> bool:
        """Nothing is held."""
        return True

    def resume(self) -> None:
        """Nothing was released."""
