"""verl on FSDP: `{model,optim,extra_state}_world_size_W_rank_R.pt` for every rank, `data.pt` last."""

import re

from trainwarden.checkpoint.contents import Contents
from trainwarden.checkpoint.verdict import Report

_FILE = re.compile(r"(model|optim|extra_state)_world_size_([0-9]{1,6})_rank_([0-9]{1,6})\.pt")
_KINDS = ("model", "optim", "extra_state")
_ROLES = ("actor/", "critic/")
_DATA = "data.pt"


def look(contents: Contents) -> Report:
    """Folders with files of ranks, by themselves or as `actor` and `critic` of one step."""
    report = Report()
    if any(f"{role}dist_ckpt/" in contents.folders for role in _ROLES):
        # On Megatron the shards are told by their own metadata; the place in the data goes with them.
        _look_for_data(contents, report)
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
            _look_for_data(contents, report)
        report.proof.append(f"{', '.join(kinds)} of all {'/'.join(sorted(sizes))} ranks are there in {folder or 'it'}")
    return report


def _look_for_data(contents: Contents, report: Report) -> None:
    if _DATA not in report.claimed and not contents.files.get(_DATA):
        report.doubts.append(f"{_DATA}, the place in the data, is missing or empty: verl writes it last")
    report.claimed.add(_DATA)
