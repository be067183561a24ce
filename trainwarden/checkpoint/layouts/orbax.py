"""Orbax, as MaxText uses it: a marker records that the save was committed, but not its files."""

from __future__ import annotations

from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.verdict import Findings

MARKERS = ("_CHECKPOINT_METADATA", "commit_success.txt")
_INSIDE = ("manifest.ocdbt", "_METADATA", "_sharding")


def check(contents: CheckpointFiles) -> Findings:
    """Check folders with a marker or with internal files of orbax."""
    report = Findings()
    markers = {name for inside in contents.folders.values() for name in inside if name in MARKERS}
    inside = [path for path in contents.files if path.rpartition("/")[2] in _INSIDE]
    if not markers and not inside:
        return report
    report.layouts.append("orbax")
    # Its own files of JSON have no suffix.
    report.claimed.update(path for path in contents.files if not path.endswith(".json"))
    empty = [path for path in inside if contents.files[path] == 0]
    if empty:
        report.defects.append(f"{empty[0]} is empty")
    if not markers:
        report.doubts.append("no marker records that it was committed")
    else:
        report.doubts.append(f"{min(markers)} records that it was committed; its data files are not listed by name")
    return report
