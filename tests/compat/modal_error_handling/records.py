"""What a training has left behind, and the programs of users as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.integrations.modal_monitor import ModalMonitor

HERE = Path(__file__).resolve().parent
TITLE = "Modal Error Handling and Monitoring Implementation"


@dataclass(frozen=True)
class Record:
    """The record of one training."""

    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return document

    @property
    def training(self) -> dict[str, Any]:
        found: dict[str, Any] = self.summary["training"]
        return found

    @property
    def status(self) -> str:
        return str(json.loads((self.folder / "metadata.json").read_text())["status"])

    @property
    def events(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "events.jsonl")

    @property
    def errors(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "errors.jsonl")

    def data_of(self, event_type: str) -> dict[str, Any]:
        """The data of the only event of a type."""
        [data] = [each["data"] for each in self.events if each["event_type"] == event_type]
        return dict(data)


def record_of(monitor: ModalMonitor, log_dir: Path) -> Record:
    """The record of the training that was begun last."""
    assert monitor.context is not None and monitor.context.run_id is not None
    return Record(log_dir / monitor.context.run_id)


def only_record(log_dir: Path) -> Record:
    """The record of the only training in a folder."""
    [folder] = log_dir.iterdir()
    return Record(folder)


def run_program(
    name: str, *arguments: str | Path, log_dir: Path, gpu: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of `programs`, beside a GPU if it is to have one."""
    paths = [str(HERE / "gpu")] if gpu else []
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TRAINWARDEN_RUNS_DIR": str(log_dir),
        **environment,
    }
    command = [sys.executable, str(HERE / "programs" / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=given)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
