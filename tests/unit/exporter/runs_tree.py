"""Runs folders as trainings leave them, at a clock that stands still."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from trainwarden import beneath
from trainwarden.record.clock import to_iso
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.collector import RunsCollector
from trainwarden_exporter.collectors.runs.filesystems import Room, RunFilesystems
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.shared_state import SharedState

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NOW = 1_800_000_000.0
HOST = "node1"


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the name of each file is added that is opened for reading from now on."""
    opened: list[str] = []
    real_open = os.open

    def open_and_note(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if not flags & os.O_PATH:  # a place is not read
            opened.append(os.path.basename(os.fsdecode(path)))  # noqa: PTH119  # of whatever path is opened
        return real_open(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", open_and_note)
    # So that every file is opened by `os.open`.
    monkeypatch.setattr(beneath, "_openat2", lambda: None)
    return opened


def _refuse(mount: str) -> Room:
    raise OSError(errno.EIO, os.strerror(errno.EIO), mount)


class RunsTree:
    """A runs folder and a collector that looks at it; `now` is the collector's clock, which is `set_by` seconds off."""

    def __init__(self, path: Path, shared: SharedState | None = None, **options: Any) -> None:
        self.path = path
        self.shared = shared or SharedState()
        self.now, self.set_by = NOW, 0.0
        self._writes = 0
        arguments = {"host": HOST, "all_hosts": False, "limit": 2000, "defaults": Thresholds(), **options}
        # How much room there is differs from one moment to the next.
        arguments.setdefault("filesystems", RunFilesystems(path, ask=_refuse))
        self.collector = RunsCollector(path, self.shared, now=self.wall, monotonic=lambda: self.now, **arguments)

    def wall(self) -> float:
        """The clock that somebody may set."""
        return self.now + self.set_by

    def folder(self, run_id: str, modified: float = NOW) -> Path:
        folder = self.path / run_id
        folder.mkdir(parents=True, exist_ok=True)
        self._touch(folder, modified)
        return folder

    def write(self, run_id: str, name: str, content: dict[str, Any] | str | bytes, modified: float = NOW) -> Path:
        file = self.folder(run_id) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            content = json.dumps(content)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        for changed in (file, file.parent, self.path / run_id):
            self._touch(changed, modified)
        return file

    def _touch(self, path: Path, modified: float) -> None:
        # One nanosecond more each time: a change, as a rename makes one, that no time in seconds shows.
        self._writes += 1
        nanoseconds = int(modified * 10**9) + self._writes
        os.utime(path, ns=(nanoseconds, nanoseconds))

    def metadata(self, run_id: str, /, **keys: Any) -> None:
        document = {
            "run_id": run_id,
            "status": "running",
            "phase": "train",
            "last_update": to_iso(self.now),
            "instance_id": "i-0abc",
            "version": 1,
            "attempt": 0,
            "attempt_key": "local:77-1:0",
            "job_id": "77-1",
            "scheduler": "local",
            "attempt_start_time": to_iso(NOW - 600),
            "start_time": to_iso(NOW - 600),
            "phase_time": to_iso(NOW - 500),
            "host": HOST,
            **keys,
        }
        self.write(run_id, "metadata.json", {key: value for key, value in document.items() if value is not None})

    def progress(self, run_id: str, /, **keys: Any) -> None:
        document = {
            "step": 120,
            "total_steps": 1000,
            "loss": 2.5,
            "learning_rate": 0.0003,
            "last_updated": to_iso(self.now),
            "version": 1,
            "attempt": 0,
            "attempt_key": "local:77-1:0",
            "step_time": to_iso(self.now - 3),
            "moved_time": to_iso(self.now - 2),
            **keys,
        }
        self.write(run_id, "progress.json", {key: value for key, value in document.items() if value is not None})

    def rank(self, run_id: str, rank: int, /, **keys: Any) -> None:
        document = {
            "rank": rank,
            "step": 120,
            "phase": "train",
            "time": to_iso(self.now),
            "host": HOST,
            "attempt_key": "local:77-1:0",
            **keys,
        }
        self.write(run_id, f"ranks/{rank}.json", {key: value for key, value in document.items() if value is not None})

    def foreign(self, run_id: str, status: str = "running", **progress: Any) -> None:
        """A record as other tools write it: the first line of keys and no more."""
        self.write(
            run_id,
            "metadata.json",
            {
                "run_id": run_id,
                "status": status,
                "phase": "training",
                "last_update": to_iso(self.now),
                "instance_id": "i-1",
            },
        )
        document = {"step": 5, "total_steps": 50, "loss": 1.0, "learning_rate": 0.1, "last_updated": to_iso(self.now)}
        self.write(run_id, "progress.json", {**document, **progress})

    def text(self) -> str:
        return encode_text(self.collector.collect()).decode()

    def samples(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """Every sample by name and labels, read by prometheus_client's own parser."""
        return samples_of(self.text())

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get(name, {}).get(frozenset(labels.items()))

    def labels(self, name: str, run_id: str) -> dict[str, str]:
        """The labels of a run's only sample of this name; empty if there is none."""
        found = [dict(labels) for labels in self.samples().get(name, {}) if ("run_id", run_id) in labels]
        assert len(found) <= 1
        return found[0] if found else {}

    def heartbeat(self, run_id: str, source: str) -> float | None:
        return self.value("training_heartbeat_timestamp_seconds", run_id=run_id, source=source)

    def state(self, run_id: str) -> str | None:
        states = self.samples().get("training_run_state", {})
        found = [dict(labels)["state"] for labels, value in states.items() if ("run_id", run_id) in labels and value]
        assert len(found) <= 1
        return found[0] if found else None


def samples_of(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name}{sample.labels} twice"
            found[sample.name][labels] = sample.value
    return found
