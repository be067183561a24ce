"""`trainwarden runs`: list the records in a folder or a prefix of S3, one line a run."""

from __future__ import annotations

import json
import sys
import time

from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.record.snapshot import Snapshot, read_snapshot
from trainwarden.redaction import label_text, plain
from trainwarden.runs.assessment import assess, is_gone, undecided
from trainwarden.runs.places import CannotRead, RecordFolder, RecordPrefix, add_place_arguments, open_place
from trainwarden.runs.table import age_text, print_table

_COLUMNS = ("RUN", "STATE", "PHASE", "ATTEMPT", "STEP", "LAST SIGN", "MESSAGE")
_MESSAGE_LENGTH = 60


def main(argv: list[str]) -> int:
    """Print the table; status 2 if there is no such place, 3 if it cannot be read now."""
    parser = CommandLine(prog="trainwarden runs", description="List the runs whose records are in a folder or in S3.")
    add_place_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the runs as JSON, as `trainwarden status` does")
    arguments = parser.parse_args(argv)
    try:
        with open_place(arguments) as place:
            return _list(place, as_json=arguments.json)
    except UsageError as error:
        parser.error(str(error))
    except CannotRead as error:
        print(f"trainwarden runs: {plain(str(error))}", file=sys.stderr)
        return 2 if error.is_final else 3
    return 2


def _list(place: RecordFolder | RecordPrefix, *, as_json: bool) -> int:
    names = place.names()
    is_copy = isinstance(place, RecordPrefix)
    if isinstance(place, RecordPrefix):
        place.fetch_all(names)
    now = time.time()
    folders = [(name, folder) for name in names if (folder := place.fetch(name)) is not None]
    if not folders:
        print(f"{place}: there are no run records in it", file=sys.stderr)
    if as_json:
        print(
            json.dumps(
                {"runs": [assess(folder, now, fetched=is_copy, run_id=name).to_json() for name, folder in folders]}
            )
        )
        return 0
    snapshots = [read_snapshot(folder) for _, folder in folders]
    print_table(_COLUMNS, [_row(snapshot, now, is_copy=is_copy) for snapshot in snapshots])
    if snapshots and all(each.state is None and each.progress is None and not each.unreadable for each in snapshots):
        print(f"{place}: none of its folders holds a run record; expected the folder right above them", file=sys.stderr)
    return 0


def _row(snapshot: Snapshot, now: float, *, is_copy: bool) -> tuple[str, ...]:
    metadata, progress = snapshot.metadata, snapshot.progress
    step = "-" if progress is None or progress.step is None else str(progress.step)
    if progress and progress.total_steps is not None:
        step += f"/{progress.total_steps}"
    message = snapshot.error.told if snapshot.error else (metadata and metadata.reason) or ""
    if not message and snapshot.unreadable:
        message = str(snapshot.unreadable[0])
    if snapshot.state == "running" and metadata and not is_copy and is_gone(metadata):
        message = f"process gone{message and ': '}{message}"
    return (
        snapshot.run_id,
        "unknown" if snapshot.state is None or undecided(snapshot) else snapshot.state,
        (metadata and metadata.phase) or "-",
        "-" if metadata is None or metadata.attempt is None else str(metadata.attempt),
        step,
        age_text(now - metadata.last_update if metadata and metadata.last_update is not None else None),
        _cut(label_text(message, 4 * _MESSAGE_LENGTH)),
    )


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_LENGTH else message[: _MESSAGE_LENGTH - 1] + "…"
