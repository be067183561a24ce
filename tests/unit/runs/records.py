"""Records as other tools write them, in a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainwarden.record.clock import to_iso

NOW = 1_754_335_425.0  # 2025-08-04T19:23:45Z
RUN = "mistral-20250804-171621"


def foreign_run(runs: Path, *, age: float = 0.0, progress_age: float | None = 0.0, run_id: str = RUN) -> Path:
    """Write the two heartbeats of a training that does not use the library; ages in seconds before NOW."""
    folder = runs / run_id
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    write(
        folder / "metadata.json",
        run_id=run_id,
        status="running",
        phase="training",
        last_update=to_iso(NOW - age)[:19] + "Z",
        instance_id="i-01fa5b57d64c6196a",
        start_time="2025-08-04T17:16:21Z",
    )
    if progress_age is not None:
        stated = to_iso(NOW - progress_age)[:19] + "Z"
        write(folder / "progress.json", step=1500, total_steps=5000, loss=2.134, last_updated=stated)
    (folder / "logs/training_log_latest.txt").write_text("first\nStep 1500/5000, loss: 2.134\n\n")
    return folder


def write(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(values))


def close(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take the right to enter a folder away, from root too."""
    look, opened = Path.lstat, os.open

    def check(path: object) -> None:
        if isinstance(path, (str, Path)) and Path(path).is_relative_to(folder) and Path(path) != folder:
            raise PermissionError(13, "Permission denied", str(path))

    def lstat(path: Path) -> os.stat_result:
        check(path)
        return look(path)

    def open_(path: Any, *more: Any, **named: Any) -> int:
        check(path)
        return opened(path, *more, **named)

    monkeypatch.setattr(Path, "lstat", lstat)
    monkeypatch.setattr(os, "open", open_)
