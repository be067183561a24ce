"""`trainwarden runs`: list the records in a folder, one line a run."""

import os
import sys
import time
from pathlib import Path

from trainwarden.command_line import CommandLine
from trainwarden.identity import host_name, process_lives
from trainwarden.record.folder import run_folders, runs_dir
from trainwarden.record.metadata import Metadata
from trainwarden.record.snapshot import Snapshot, read_snapshot

_COLUMNS = ("RUN", "STATE", "PHASE", "ATTEMPT", "STEP", "LAST SIGN", "MESSAGE")
_MESSAGE_LENGTH = 60


def main(argv: list[str]) -> int:
    """Print the table; status 2 if there is no such folder."""
    parser = CommandLine(prog="trainwarden runs", description="List the runs whose records are in a folder.")
    parser.add_argument(
        "--runs-dir",
        type=Path,
        help="the folder that holds one folder per run (default: $TRAINWARDEN_RUNS_DIR, else /var/lib/trainwarden/runs "
        "where it is writable, else ~/.local/state/trainwarden/runs)",
    )
    folder: Path = parser.parse_args(argv).runs_dir or runs_dir()
    if not folder.is_dir():
        parser.error(f"{folder}: no such folder; expected that of the run records, --runs-dir or $TRAINWARDEN_RUNS_DIR")
    if not os.access(folder, os.R_OK | os.X_OK):
        parser.error(f"{folder}: this user cannot read that folder")
    now = time.time()
    found = [_row(read_snapshot(run), now) for run in run_folders(folder)]
    if not found:
        print(f"{folder}: there are no run records in this folder", file=sys.stderr)
    rows = [_COLUMNS, *found]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _row(snapshot: Snapshot, now: float) -> tuple[str, ...]:
    metadata, progress = snapshot.metadata, snapshot.progress
    step = "-" if progress is None or progress.step is None else str(progress.step)
    if progress and progress.total_steps is not None:
        step += f"/{progress.total_steps}"
    message = snapshot.error.message if snapshot.error else (metadata and metadata.reason) or ""
    if not message and snapshot.unreadable:
        message = str(snapshot.unreadable[0])
    if snapshot.state == "running" and metadata and _is_gone(metadata):
        message = f"process gone{message and ': '}{message}"
    return (
        snapshot.run_id,
        snapshot.state or "unknown",
        (metadata and metadata.phase) or "-",
        "-" if metadata is None or metadata.attempt is None else str(metadata.attempt),
        step,
        _age(metadata.last_update if metadata else None, now),
        "".join(letter if letter.isprintable() else " " for letter in _cut(message)),
    )


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_LENGTH else message[: _MESSAGE_LENGTH - 1] + "…"


def _is_gone(metadata: Metadata) -> bool:
    # Of a container's processes, which has another name, nothing is known here.
    return metadata.host == host_name() and metadata.pid is not None and not process_lives(metadata.pid)


def _age(then: float | None, now: float) -> str:
    if then is None:
        return "-"
    seconds = max(0, int(now - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
