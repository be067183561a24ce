"""Hugging Face: checkpoints of Trainer, and the model files that `save_pretrained` writes."""

from __future__ import annotations

import re

from trainwarden.checkpoint.contents import CheckpointFiles, DamagedFile
from trainwarden.checkpoint.verdict import Findings, abbreviated

_NAME = re.compile(r"checkpoint-([0-9]{1,18})")
_RNG = re.compile(r"rng_state(?:_([0-9]{1,7}))?\.pth")
_MODEL = re.compile(r"(?:model|pytorch_model|adapter_model)(?:\.[\w-]+)?\.(?:safetensors|bin)")
_SHARD = re.compile(r"((?:model|pytorch_model)(?:\.[\w-]+?)?)-[0-9]{5}-of-([0-9]{5})\.(safetensors|bin)")
_CONFIGURATIONS = frozenset(
    (
        "adapter_config.json",
        "added_tokens.json",
        "config.json",
        "generation_config.json",
        "preprocessor_config.json",
        "processor_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    )
)
_STATE, _ARGUMENTS, _OPTIMIZER, _SCHEDULER = "trainer_state.json", "training_args.bin", "optimizer.pt", "scheduler.pt"


def check_model(contents: CheckpointFiles) -> Findings:
    """Check model weights in one file or in shards with an index, in the checkpoint's folder or one below."""
    report = Findings()
    for folder, names in sorted(contents.folders.items()):
        single = {name for name in names if _MODEL.fullmatch(name)}
        shards = {match for match in map(_SHARD.fullmatch, names) if match}
        indices = {name for name in names if name.endswith((".safetensors.index.json", ".bin.index.json"))}
        report.claimed.update(folder + name for name in single)
        if single or shards or indices or folder.endswith("huggingface/"):
            report.claimed.update(folder + name for name in names & _CONFIGURATIONS)
        if not single and not shards and not indices:
            continue
        report.layouts.append("transformers model")
        for name in sorted(indices):
            _index(contents, folder, name, report)
        for base, count, ending in sorted({match.groups() for match in shards}):
            numbers = range(1, int(count) + 1)
            contents.require(
                report, [f"{folder}{base}-{number:05}-of-{count}.{ending}" for number in numbers], "their names promise"
            )
            contents.require(report, [f"{folder}{base}.{ending}.index.json"], "belongs to the shards of a model")
        has_adapter = any(name.startswith("adapter_model.") for name in single)
        if has_adapter != ("adapter_config.json" in names):
            report.doubts.append(
                f"{folder or 'it'} holds one of adapter_config.json and the adapter, and not the other"
            )
        if not has_adapter and "config.json" not in names:
            report.doubts.append(f"{folder}config.json is not there: the model has none, or it is lost")
        if not report.defects:
            report.proofs.append("the model is there, with all files that it promises")
    return report


def _index(contents: CheckpointFiles, folder: str, name: str, report: Findings) -> None:
    path = folder + name
    if contents.files[path] == 0:
        report.defects.append(f"{path} is empty")
        return
    weights = contents.json(path).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise DamagedFile(f"{path} has no weight_map")
    contents.require(report, sorted({f"{folder}{file}" for file in weights.values()}), f"{path} promises")


def check_trainer(contents: CheckpointFiles) -> Findings:
    """Check `checkpoint-N` as Trainer writes it: the model first, `trainer_state.json` last."""
    report = Findings()
    names = contents.folders.get("", set())
    if _STATE not in names and not (_NAME.fullmatch(contents.name) and _ARGUMENTS in names):
        return report
    report.layouts.append("transformers Trainer")
    report.claimed |= {
        _ARGUMENTS,
        "scaler.pt",
        # Beside the states of DeepSpeed too, unless its own scheduler is used.
        _SCHEDULER,
        "optimizer.bin",
        "pytorch_model_fsdp.bin",
        *filter(_RNG.fullmatch, names),
    }
    contents.require(report, [_STATE], "Trainer writes last")
    if contents.files.get(_STATE):
        _state(contents, report)
    by_deepspeed = any(name.endswith("_states.pt") for inside in contents.folders.values() for name in inside)
    by_fsdp = "pytorch_model_fsdp.bin" in names or "pytorch_model_fsdp_0/" in contents.folders
    has_model = any(
        _MODEL.fullmatch(name) or _SHARD.fullmatch(name) for inside in contents.folders.values() for name in inside
    )
    if not (has_model or by_deepspeed or by_fsdp) and contents.listed_all:
        report.defects.append("no file of the model is there")
    if not by_fsdp and not contents.files.get(_ARGUMENTS):
        report.doubts.append(f"{_ARGUMENTS}, which Trainer saves with the model, is missing or empty")
    if not by_deepspeed:
        _optimizer(contents, names, report)
    if not report.defects and not report.doubts:
        report.proofs.append(f"all that Trainer saves is there, and {_STATE}, which it writes last")
    return report


def _state(contents: CheckpointFiles, report: Findings) -> None:
    step = contents.json(_STATE).get("global_step")
    named = _NAME.fullmatch(contents.name)
    if not isinstance(step, int):
        report.doubts.append(f"{_STATE} names no step")
    elif named and int(named[1]) != step:
        report.doubts.append(f"{_STATE} names step {step}, the folder step {named[1]}")


def _optimizer(contents: CheckpointFiles, names: set[str], report: Findings) -> None:
    """Check the files that Trainer loads only together: optimizer and scheduler; and the random generators' states."""
    ranks = [int(match[1] or 0) for match in map(_RNG.fullmatch, names) if match]
    by_fsdp = "optimizer.bin" in names or "optimizer_0/" in contents.folders
    if _OPTIMIZER not in names and not by_fsdp and _SCHEDULER not in names:
        report.doubts.append("neither optimizer nor scheduler: saved without them, or lost")
        return
    contents.require(report, [_SCHEDULER] if by_fsdp else [_OPTIMIZER, _SCHEDULER], "Trainer loads together")
    # The number of ranks is not recorded, so missing files of the last ranks go unnoticed; Trainer resumes without.
    lost = [f"rng_state_{rank}.pth" for rank in range(max(ranks, default=0)) if f"rng_state_{rank}.pth" not in names]
    if not ranks or lost:
        report.doubts.append(f"states of random numbers are missing: {abbreviated(lost) or 'all'}")
