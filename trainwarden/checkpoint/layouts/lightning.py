"""Lightning on FSDP: a folder `….ckpt` with torch DCP inside, and `meta.pt`. Its usual `.ckpt` is one file."""

from trainwarden.checkpoint.contents import Contents
from trainwarden.checkpoint.verdict import Report

_META = "meta.pt"


def look(contents: Contents) -> Report:
    """A folder called `….ckpt` that holds shards, or any folder of shards with `meta.pt`."""
    report = Report()
    names = contents.folders.get("", set())
    has_shards = ".metadata" in names or any(name.endswith(".distcp") for name in names)
    if has_shards and (_META in names or contents.name.endswith(".ckpt")):
        report.layouts.append("Lightning")
        contents.require(report, [_META], "Lightning saves beside the shards")
    return report
