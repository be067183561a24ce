"""Where the records of runs are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import runs_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def runs_folder(flags: Mapping[str, Any]) -> Path:
    """Return the runs folder that the flags, else the environment, name."""
    path: Path | None = flags["collector.runs.path"]
    return path or runs_dir()
