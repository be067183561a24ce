"""The collector of records in S3, run in a child process; each prefix is sampled by itself."""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.clients.s3 import S3Bucket
from trainwarden.clients.s3_location import parse_s3_url
from trainwarden_exporter.collectors.s3.local_copy import LocalCopy, copy_folder
from trainwarden_exporter.collectors.s3.prefix_sync import WORKERS, Bounds, PrefixSync
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainwarden_exporter.core.metric import Family


class S3Collector:
    """Copies the records of several prefixes to folders of this node."""

    name = "s3"

    def __init__(self, prefixes: Mapping[str, PrefixSync], interval: float, timeout: float) -> None:
        self.prefixes = prefixes
        self._interval, self._timeout = interval, timeout

    def collect(self) -> Iterable[Family]:
        """Return nothing: every series belongs to a prefix."""
        return ()

    def tasks(self) -> Sequence[SampleTask]:
        """Return a task for each prefix."""
        return [
            SampleTask(self.name, prefix.sample, self._interval, self._timeout, url)
            for url, prefix in self.prefixes.items()
        ]

    def close(self) -> None:
        """Do nothing: no resource is held between two samples."""


def build(settings: Mapping[str, Any]) -> S3Collector:
    """Return the collector; `settings` are those of `spec.create`."""
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it logs at length how it found its credentials
    if "memory_bytes" in settings:
        # botocore reads a listing to its end: one without an end would take the memory of the training beside it.
        most = min(each for each in (settings["memory_bytes"], *resource.getrlimit(resource.RLIMIT_DATA)) if each >= 0)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    timeout = float(settings["timeout"])
    bounds = Bounds(int(settings["runs"]), min(15.0, timeout / 2))
    prefixes = {}
    for url in settings["urls"]:
        bucket = S3Bucket(
            parse_s3_url(url, settings["region"], source="--collector.s3.url"),
            connect_seconds=settings["connect_seconds"],
            read_seconds=settings["read_seconds"],
            connections=WORKERS,
        )
        prefixes[url] = PrefixSync(bucket, LocalCopy(copy_folder(Path(settings["cache"]), url), url), bounds)
    return S3Collector(prefixes, float(settings["interval"]), timeout)
