"""The collector of records in S3, as the child process runs it: each prefix is sampled by itself."""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.s3.location import parse
from trainwarden_exporter.collectors.s3.copy import Copy, place_of
from trainwarden_exporter.collectors.s3.place import Bounds, Place
from trainwarden_exporter.collectors.s3.store import Store
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainwarden_exporter.core.metric import Family


class S3Collector:
    """Copies the records of several prefixes to folders of this node."""

    name = "s3"

    def __init__(self, places: Mapping[str, Place], interval: float, timeout: float) -> None:
        self._places, self._interval, self._timeout = places, interval, timeout

    def collect(self) -> Iterable[Family]:
        """Everything belongs to some prefix."""
        return ()

    def parts(self) -> Sequence[SampleTask]:
        """Return the prefixes."""
        return [
            SampleTask(self.name, place.read, self._interval, self._timeout, url) for url, place in self._places.items()
        ]

    def close(self) -> None:
        """Nothing is held between two looks."""


def build(settings: Mapping[str, Any]) -> S3Collector:
    """Return the collector that `wiring` asks for."""
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it tells at length how it found its credentials
    if "memory_bytes" in settings:
        # botocore reads a list to its end: an answer without one would take the memory of the training beside it.
        most = min(each for each in (settings["memory_bytes"], *resource.getrlimit(resource.RLIMIT_DATA)) if each >= 0)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    timeout = float(settings["timeout"])
    bounds = Bounds(int(settings["runs"]), min(15.0, timeout / 2))
    places = {}
    for url in settings["urls"]:
        location = parse(url, settings["region"], source="--collector.s3.url")
        store = Store(location, settings["connect_seconds"], settings["read_seconds"])
        places[url] = Place(store, Copy(place_of(Path(settings["cache"]), url)), bounds)
    return S3Collector(places, float(settings["interval"]), timeout)
