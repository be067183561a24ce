"""A runs folder with logs, and both collectors that look at it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.unit.exporter.runs_tree import HOST, RunsTree, samples_of
from trainwarden_exporter.collectors.logs.collector import LogsCollector, LogSettings
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.core.state_folder import StateFolder
from trainwarden_exporter.sampling.blocking_io import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden.signals.tailing.template import Template

LATEST = "logs/training_log_latest.txt"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"


class LogsTree:
    """`look` is one look of both collectors; samples are as they are exposed after it."""

    def __init__(
        self, folder: Path, templates: tuple[Template, ...] = (), timeout: float = TIMEOUT_SECONDS, **settings: Any
    ) -> None:
        self.folder = folder
        self._timeout = timeout
        roots = (str(folder / "runs"), *(template.root for template in templates))
        self._settings = LogSettings(
            **{"pack": "all", "templates": templates, "roots": roots, "host": HOST, **settings}
        )
        self._now: float | None = None
        self.start()

    def start(self) -> None:
        """A new exporter, with the state that the one before has kept."""
        self.shared = SharedState()
        self.runs = RunsTree(self.folder / "runs", self.shared, logs_followed=True)
        if self._now is not None:
            self.runs.now = self._now
        self.state = StateFolder(self.folder / "state", waits=True)
        self.collector = LogsCollector(
            self.shared,
            self._settings,
            self.state,
            now=self.runs.wall,
            monotonic=lambda: self.runs.now,
            timeout=self._timeout,
        )
        self.samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}

    def restart(self, *, overlapping: bool = False) -> None:
        """End the exporter, however it ends, and start it again; where they overlap leave the old one its state."""
        self._now = self.runs.now
        if not overlapping:
            self.state.close()
        self.start()

    def look(self, seconds: float = 2.0) -> str:
        """Let time pass and look; returns the whole page."""
        self.runs.now += seconds
        list(self.runs.collector.collect())
        logs = encode_text(self.collector.collect()).decode()
        page = self.runs.text() + logs
        self.samples = samples_of(page)
        return page

    def write(self, run_id: str, text: str | bytes, name: str = LATEST) -> Path:
        """Append to a log."""
        path = self.runs.folder(run_id) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        os.utime(path, (self.runs.now, self.runs.now))
        self.runs.folder(run_id, self.runs.now)
        return path

    def value(self, name: str, **labels: str) -> float | None:
        """The only sample of this name that has these labels among others."""
        found = [value for key, value in self.samples.get(name, {}).items() if labels.items() <= dict(key).items()]
        assert len(found) <= 1, found
        return found[0] if found else None

    def count(self, run_id: str, signal: str) -> float | None:
        """How often a signal was found."""
        return self.value("training_log_signals_total", run_id=run_id, signal=signal)

    def labels(self, name: str, run_id: str) -> dict[str, str]:
        """The labels of a run's only sample of this name; empty if there is none."""
        found = [dict(key) for key in self.samples.get(name, {}) if ("run_id", run_id) in key]
        assert len(found) <= 1
        return found[0] if found else {}
