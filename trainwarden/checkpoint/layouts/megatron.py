"""Megatron: distributed checkpoints (DCP, `common.pt`, `metadata.json`), and the older `mp_rank_TT_PPP` folders."""

from __future__ import annotations

import itertools
import re

from trainwarden.checkpoint import archive, pickle_scan
from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.verdict import Findings

_RANK_FILE = re.compile(
    r"(.*/)?(mp_rank_([0-9]{2,4})(?:_([0-9]{3}))?(?:_([0-9]{3}))?)/((?:model_\w*rng|distrib_optim)\.pt)"
)
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")


def check_distributed(contents: CheckpointFiles) -> Findings:
    """Check folders with `common.pt`, or with a `metadata.json` that names a sharded backend."""
    report = Findings()
    for folder, names in sorted(contents.folders.items()):
        backend = _backend(contents, f"{folder}metadata.json", report) if "metadata.json" in names else None
        if "common.pt" not in names and backend is None:
            continue
        report.layouts.append("Megatron distributed")
        # Megatron Bridge keeps the counters of the training in a file of their own.
        state = f"{folder}train_state.pt"
        report.claimed.add(state)
        if "run_config.yaml" in names and state not in contents.files:
            report.doubts.append(f"{state}, which belongs to {folder}run_config.yaml, is missing")
        contents.require(report, [f"{folder}metadata.json", f"{folder}common.pt"], "Megatron saves")
        if backend is not None and backend != "torch_dist":
            report.doubts.append(f"what the sharded backend {backend} promises is not known")
        else:
            contents.require(report, [f"{folder}.metadata"], "Megatron saves last of all shards")
    return report


def _backend(contents: CheckpointFiles, path: str, report: Findings) -> str | None:
    if contents.files[path] == 0:
        report.defects.append(f"{path} is empty")
        return None
    backend = contents.json(path).get("sharded_backend")
    return backend if isinstance(backend, str) else None


def check_legacy(contents: CheckpointFiles) -> Findings:
    """Check folders `mp_rank_TT[_PPP][_EEE]`, one for each part of the model."""
    report = Findings()
    found = [match for match in map(_RANK_FILE.fullmatch, contents.files) if match]
    for base in sorted({match[1] or "" for match in found}):
        here = [match for match in found if (match[1] or "") == base]
        report.layouts.append("Megatron mp_rank")
        report.claimed.update(match[0] for match in here)
        _check_legacy_folder(contents, base, here, report)
    return report


def _check_legacy_folder(contents: CheckpointFiles, base: str, here: list[re.Match[str]], report: Findings) -> None:
    files = sorted({match[6] for match in here})
    arguments = _read_arguments(contents, sorted(match[0] for match in here if match[6].endswith("rng.pt")))
    parts = [[int(part) for part in match.groups()[2:5] if part is not None] for match in here]
    width = max(map(len, parts))
    if arguments is None:
        folders = _grid([max(one[place] for one in parts if len(one) > place) + 1 for place in range(width)])
        report.doubts.append(f"how many mp_rank folders {base or 'it'} should have is not known")
    else:
        tensor, pipeline, expert = (int(arguments.get(name, 1)) for name in _SIZES)
        folders = _grid([tensor, *([pipeline] if pipeline > 1 else []), *([expert] if expert > 1 else [])])
        if arguments.get("use_distributed_optimizer") is True and arguments.get("ckpt_format", "torch") == "torch":
            files = sorted({*files, "distrib_optim.pt"})
        files = sorted({*files, "model_optim_rng.pt"})
        report.proofs.append(f"all {len(folders)} mp_rank folders that its saved arguments ask for are there")
    contents.require(report, [f"{base}{folder}/{file}" for folder in folders for file in files], "its ranks save")


def _grid(sizes: list[int]) -> list[str]:
    # The first index has two digits, the others three.
    ranges = [
        [f"{index:0{2 if place == 0 else 3}}" for index in range(min(size, 4096))] for place, size in enumerate(sizes)
    ]
    return ["mp_rank_" + "_".join(indices) for indices in itertools.islice(itertools.product(*ranges), 2**16)]


def _read_arguments(contents: CheckpointFiles, paths: list[str]) -> dict[str, pickle_scan.Value] | None:
    """Return the training's arguments from the first readable file; None if it holds none."""
    wanted = {*_SIZES, "use_distributed_optimizer", "ckpt_format"}
    for path in paths[:1]:
        if not contents.files[path] or contents.read(path, 0, 4) != archive.START:
            continue
        data = archive.pickle_of(contents, path)
        arguments = pickle_scan.read_values(data, wanted, contents.deadline, path)
        if isinstance(arguments.get(_SIZES[0]), int) and isinstance(arguments.get(_SIZES[1]), int):
            return arguments
    return None
