"""DeepSpeed: `mp_rank_MM_model_states.pt` holds the number of ranks; each rank writes its optimizer state."""

from __future__ import annotations

import re
from itertools import islice, product

from trainwarden.checkpoint import archive, pickle_scan
from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.verdict import Findings

_STATES = re.compile(r".*(model|optim)_states\.pt")
_MODEL = re.compile(r"mp_rank_([0-9]{1,3})_model_states\.pt")
_ZERO = re.compile(r"((?:bf16_|fp16_)?zero_pp_rank_)([0-9]{1,5})_mp_rank_([0-9]{1,3})_(model|optim)_states\.pt")
# The number of these files follows from the model, which no file of the checkpoint describes.
_PARTS = re.compile(r"(layer_|expp_rank_).*_states\.pt")
_MAX_RANKS = 2**18


def check(contents: CheckpointFiles) -> Findings:
    """Check folders with `…_states.pt`."""
    report = Findings()
    for folder, names in sorted(contents.folders.items()):
        states = {name for name in names if _STATES.fullmatch(name)}
        if states:
            report.layouts.append("DeepSpeed")
            report.claimed.update(folder + name for name in states)
            _check_folder(contents, folder, states, report)
    return report


def _check_folder(contents: CheckpointFiles, folder: str, states: set[str], report: Findings) -> None:
    zero = [match for match in map(_ZERO.fullmatch, states) if match]
    models = [match for match in map(_MODEL.fullmatch, states) if match]
    sources = sorted([match[0] for match in models] or [match[0] for match in zero if match[4] == "model"])
    if not sources:
        if contents.listed_all:
            report.defects.append(f"no file …model_states.pt is in {folder or 'it'}")
        return
    values = _read_values(contents, folder + sources[0])
    ranks = _ranks(values)
    if ranks is None or any(_PARTS.fullmatch(name) for name in states):
        report.doubts.append(f"how many files {folder or 'it'} should have is not known")
        ranks = (
            1 + max((int(match[2]) for match in zero), default=0),
            1 + max([int(match[3]) for match in zero] + [int(match[1]) for match in models]),
        )
    data, model = ranks
    stage = values.get("stage")
    kinds = {match[4]: match[1] for match in zero}
    if isinstance(stage, int) and stage > 0:
        kinds.setdefault("optim", "zero_pp_rank_")
    elif "optim" not in kinds and stage is None:
        report.doubts.append("whether optimizer states belong to it is not known")
    wanted = [f"mp_rank_{part:02}_model_states.pt" for part in range(model)] if models else []
    parts = list(islice(product(range(data), range(model)), _MAX_RANKS))
    for kind, begin in kinds.items():
        wanted += [f"{begin}{rank}_mp_rank_{part:02}_{kind}_states.pt" for rank, part in parts]
    contents.require(report, [folder + name for name in wanted], f"{data} by {model} ranks save")
    report.proofs.append(f"the states of {data} by {model} ranks are there, as {sources[0]} promises")


def _ranks(values: dict[str, pickle_scan.Value]) -> tuple[int, int] | None:
    """Return the number of data-parallel and of model-parallel ranks; None if unknown."""
    data, model = values.get("dp_world_size"), values.get("mp_world_size")
    if type(data) is int and type(model) is int and data > 0 and model > 0 and data * model <= _MAX_RANKS:
        return data, model
    return None


def _read_values(contents: CheckpointFiles, path: str) -> dict[str, pickle_scan.Value]:
    if not contents.files[path] or contents.read(path, 0, 4) != archive.START:
        return {}
    data = archive.pickle_of(contents, path)
    wanted = {"dp_world_size", "mp_world_size", "stage"}
    return pickle_scan.read_values(data, wanted, contents.deadline, path)
