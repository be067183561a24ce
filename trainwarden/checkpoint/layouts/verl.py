"""verl on FSDP: `{model,optim,extra_state}_world_size_W_rank_R.pt` for every rank, `data.pt` last."""

from __future__ import annotations

import re

from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.verdict import Findings

_FILE = re.compile(r"(model|optim|extra_state)_world_size_([0-9]{1,6})_rank_([0-9]{1,6})\.pt")
_KINDS = ("model", "optim", "extra_state")
_ROLES = ("actor/", "critic/")
_DATA = "data.pt"


def check(contents: CheckpointFiles) -> Findings:
    """Check folders with files of ranks, alone or as `actor` and `critic` of one step."""
    report = Findings()
    if any(f"{role}dist_ckpt/" in contents.folders for role in _ROLES):
        # On Megatron the metadata lists the shards; the position in the data belongs to them.
        _check_data_position(contents, report)
    for folder, names in sorted(contents.folders.items()):
        found = [match for match in map(_FILE.fullmatch, names) if match]
        if not found:
            continue
        report.layouts.append("verl FSDP")
        sizes = {match[2] for match in found}
        kinds = [kind for kind in _KINDS if any(match[1] == kind for match in found)]
        wanted = [
            f"{folder}{kind}_world_size_{size}_rank_{rank}.pt"
            for size in sizes
            for kind in kinds
            for rank in range(min(int(size), 2**17))
        ]
        contents.require(report, wanted, "their names promise")
        if len(kinds) < len(_KINDS):
            report.doubts.append(f"{folder or 'it'} holds {', '.join(kinds)} alone: saved so, or lost")
        if len(sizes) > 1:
            report.doubts.append(f"{folder or 'it'} holds files of several world sizes")
        if folder in _ROLES:
            _check_data_position(contents, report)
        report.proofs.append(f"{', '.join(kinds)} of all {'/'.join(sorted(sizes))} ranks are there in {folder or 'it'}")
    return report


def _check_data_position(contents: CheckpointFiles, report: Findings) -> None:
    if _DATA not in report.claimed and not contents.files.get(_DATA):
        report.doubts.append(f"{_DATA}, the position in the data, is missing or empty: verl writes it last")
    report.claimed.add(_DATA)
