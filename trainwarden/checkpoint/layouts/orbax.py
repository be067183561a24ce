"""Orbax, as MaxText uses it: a marker says that the save was committed, not what belongs to it."""

from trainwarden.checkpoint.contents import Contents
from trainwarden.checkpoint.verdict import Report

MARKERS = ("_CHECKPOINT_METADATA", "commit_success.txt")
_INSIDE = ("manifest.ocdbt", "_METADATA", "_sharding")


def look(contents: Contents) -> Report:
    """Folders with a marker of orbax, or with what it writes inside."""
    report = Report()
    markers = {name for held in contents.folders.values() for name in held if name in MARKERS}
    inside = [path for path in contents.files if path.rpartition("/")[2] in _INSIDE]
    if not markers and not inside:
        return report
    report.layouts.append("orbax")
    report.claimed.update(contents.files)
    empty = [path for path in inside if contents.files[path] == 0]
    if empty:
        report.against.append(f"{empty[0]} is empty")
    if not markers:
        report.doubts.append("no marker says that it was committed")
    else:
        report.doubts.append(f"{min(markers)} says that it was committed; its data files are not listed by name")
    return report
