"""Where run records live, what their files are called, and how they are replaced."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record import place
from trainwarden.record.place import METADATA, OWNER, PROGRESS, RANKS, WRAPPER, encode

__all__ = [
    "CHECKPOINTED", "CHECKPOINTS", "COMPLETE", "ERROR", "ERRORS", "EVENTS", "LOG", "METADATA", "OWNER", "PROGRESS",
    "RANKS", "RESTART", "SUMMARY", "WRAPPER", "encode", "replace_file", "run_folder", "run_folders", "runs_dir",
    "write_json", "write_temporary",
]  # fmt: skip

CHECKPOINTED = "checkpoint.json"
EVENTS = "events.jsonl"
ERRORS = "errors.jsonl"
SUMMARY = "summary.json"
ERROR = "_error"
COMPLETE = "_complete"
RESTART = "_restart"
LOG = "logs/training_log_latest.txt"
CHECKPOINTS = "checkpoints"


def runs_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds one folder per run; it need not exist yet."""
    return Path(place.runs_place(environ))


def run_folder(run_id: str, runs: Path | None = None) -> Path:
    """The folder of one run's record; it need not exist yet.

    Raises:
        InvalidRunId: `run_id` cannot name a run.
    """
    return (runs_dir() if runs is None else runs) / check_run_id(run_id)


def run_folders(runs: Path) -> Iterator[Path]:
    """Every folder in `runs` whose name is a run id, by name; nothing if `runs` cannot be read."""
    try:
        names = sorted(entry.name for entry in os.scandir(runs) if entry.is_dir())
    except OSError:
        return
    for name in names:
        with contextlib.suppress(InvalidRunId):
            yield runs / check_run_id(name)


def write_temporary(path: Path, content: bytes, *, durable: bool) -> Path:
    """Write `content` beside `path`, ready to be renamed or linked to it; see `place.write_temporary`.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    return Path(place.write_temporary(str(path), content, durable=durable))


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace `path` at once: a reader sees the old content or the new, never a part.

    Raises:
        OSError: it could not be written; `path` is as before.
    """
    place.replace(str(path), content, durable=durable)


def write_json(path: Path, document: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace `path` by `document`; see `encode` and `replace_file`."""
    replace_file(path, encode(document), durable=durable)
