"""Lightning on FSDP: a folder `….ckpt` with torch DCP inside, and `meta.pt`. Its usual `.ckpt` is one file."""

from __future__ import annotations

from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.verdict import Findings

_META = "meta.pt"


def check(contents: CheckpointFiles) -> Findings:
    """Check a folder `….ckpt` that holds shards, or any folder of shards with `meta.pt`."""
    report = Findings()
    names = contents.folders.get("", set())
    has_shards = ".metadata" in names or any(name.endswith(".distcp") for name in names)
    if has_shards and (_META in names or contents.name.endswith(".ckpt")):
        report.layouts.append("Lightning")
        contents.require(report, [_META], "Lightning saves beside the shards")
    return report
