"""Records in S3, copied and told of in this process: what the exporter's child and its parent do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from tests.unit.exporter.runs_tree import samples_of
from trainwarden.clients.s3 import S3Bucket
from trainwarden.clients.s3_location import parse_s3_url
from trainwarden.record.clock import to_iso
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.collector import RunsCollector
from trainwarden_exporter.collectors.s3.collector import build
from trainwarden_exporter.collectors.s3.local_copy import copy_folder
from trainwarden_exporter.collectors.s3.prefix_sync import PrefixSync
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.shared_state import SharedState

HOST = "node1"
KEY = "slurm:7:0"

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


def metadata(run_id: str, clock: float = 0.0, **keys: Any) -> dict[str, Any]:
    """A running record's metadata, by a clock that is so many seconds ahead."""
    now = time.time() + clock
    return {
        "run_id": run_id,
        "status": "running",
        "phase": "train",
        "version": 1,
        "host": HOST,
        "attempt": 0,
        "attempt_key": KEY,
        "attempt_start_time": to_iso(now - 600),
        "phase_time": to_iso(now - 500),
        "last_update": to_iso(now),
        **keys,
    }


def progress(clock: float = 0.0, **keys: Any) -> dict[str, Any]:
    now = to_iso(time.time() + clock)
    return {"step": 7, "attempt_key": KEY, "last_updated": now, "step_time": now, "moved_time": now, **keys}


class Prefix:
    """A prefix of a bucket of the test's own."""

    def __init__(self, store: Store, server: FaultyServer, folder: Path) -> None:
        self.store, self.server = store, server
        self.cache, self.runs = folder / "copies", folder / "runs"
        self.place = self.new_place()
        self.collector = self.collector_of()

    def new_place(self, **settings: Any) -> PrefixSync:
        """What copies, begun anew."""
        told = {
            "urls": [self.store.url], "region": None, "cache": str(self.cache), "runs": 100, "interval": 20.0,
            "timeout": 60.0, "connect_seconds": 30.0, "read_seconds": 30.0, **settings,
        }  # fmt: skip
        return next(iter(build(told).prefixes.values()))

    def bucket(self) -> S3Bucket:
        """A client of the prefix."""
        return S3Bucket(parse_s3_url(self.store.url))

    def collector_of(self, host: str = HOST, *, all_hosts: bool = False, **settings: Any) -> RunsCollector:
        """What tells of the records, in the folder and in the copy."""
        places = [copy_folder(self.cache, self.store.url)]
        return RunsCollector(
            self.runs,
            SharedState(),
            host=host,
            all_hosts=all_hosts,
            limit=100,
            defaults=Thresholds(),
            copies=places,
            **settings,
        )

    def write(self, name: str, content: bytes | dict[str, Any]) -> None:
        """Put an object; `name` is relative to the prefix."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.store.client.put_object(Bucket=self.store.bucket, Key=f"{self.store.prefix}/{name}", Body=data)

    def delete(self, name: str) -> None:
        self.store.client.delete_object(Bucket=self.store.bucket, Key=f"{self.store.prefix}/{name}")

    def run(self, run_id: str = "r", clock: float = 0.0, **keys: Any) -> None:
        """Put a running record."""
        self.write(f"{run_id}/metadata.json", metadata(run_id, clock, **keys))
        self.write(f"{run_id}/progress.json", progress(clock))

    def look(self) -> Samples:
        """Copy once, however S3 fared before; returns what is said of S3."""
        self.place._not_before = 0.0
        return samples_of(encode_text(self.place.sample()).decode())

    def page(self, collector: RunsCollector | None = None) -> Samples:
        return samples_of(encode_text((collector or self.collector).collect()).decode())

    def up(self) -> float:
        (value,) = self.look()["trainwarden_s3_up"].values()
        return value

    def errors(self) -> dict[str, float]:
        """The errors of any number, by reason, without another look."""
        found = samples_of(encode_text(self.place.families()).decode())["trainwarden_s3_errors_total"]
        return {dict(labels)["reason"]: value for labels, value in found.items() if value}


def of(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get(name, {}).get(frozenset(labels.items()))
