"""Checkpoints as the frameworks write them, made without the frameworks."""

import argparse
import io
import json
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

Files = dict[str, bytes]

_MODULES = (".checkpoint", ".checkpoint.metadata", ".checkpoint.filesystem")


def safetensors(tensors: int = 3, of_bytes: int = 100) -> bytes:
    """A file with that many tensors, of that many bytes each."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for number in range(tensors):
        offsets = [number * of_bytes, (number + 1) * of_bytes]
        header[f"layer.{number}"] = {"dtype": "U8", "shape": [of_bytes], "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"\x07" * (tensors * of_bytes)


def torch_file(content: object = None, data: int = 500) -> bytes:
    """What `torch.save` writes: a pickle of protocol 2 and the bytes of a tensor, stored in a zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", b"\x07" * data)
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


def dcp_metadata(promised: Mapping[str, int], pieces: int = 2) -> bytes:
    """The `.metadata` of a save whose shards have at least these many bytes, from classes called as torch's are."""
    package, of_metadata, of_files = (f"torch.distributed{part}" for part in _MODULES)
    modules = {name: types.ModuleType(name) for name in ("torch", "torch.distributed", package, of_metadata, of_files)}
    classes = {
        name: type(name, (), {"__module__": module, "__qualname__": name})
        for module, name in ((of_metadata, "Metadata"), (of_metadata, "MetadataIndex"), (of_files, "_StorageInfo"))
    }
    for name, made in classes.items():
        setattr(modules[made.__module__], name, made)

    def instance(name: str, **values: object) -> object:
        one = classes[name]()
        one.__dict__.update(values)
        return one

    storage = {}
    for shard, size in promised.items():
        for piece in range(pieces):
            begin, end = size * piece // pieces, size * (piece + 1) // pieces
            key = instance("MetadataIndex", fqn=f"layer.{piece}", index=piece, offset=(0, piece))
            storage[key] = instance("_StorageInfo", relative_path=shard, offset=begin, length=end - begin)
    whole = instance("Metadata", state_dict_metadata={}, planner_data=None, storage_data=storage, version="1.0.0")
    with mock.patch.dict(sys.modules, modules):
        return pickle.dumps(whole)


def dcp(ranks: int = 3, size: int = 300) -> Files:
    """torch.distributed.checkpoint; a fourth rank had nothing to save, and left an empty shard."""
    shards = {f"__{rank}_0.distcp": size for rank in range(ranks)}
    files = {name: b"\x07" * size for name, size in shards.items()}
    return {".metadata": dcp_metadata(shards), **files}


def megatron_distributed() -> Files:
    backend = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}
    return {"common.pt": torch_file(), "metadata.json": json.dumps(backend).encode(), **dcp()}


def megatron_legacy(tensor: int = 2, pipeline: int = 2) -> Files:
    arguments = argparse.Namespace(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=1,
        use_distributed_optimizer=True,
        ckpt_format="torch",
    )
    model = torch_file({"args": arguments, "iteration": 10})
    folders = [f"mp_rank_{t:02}_{p:03}" for t in range(tensor) for p in range(pipeline)]
    if pipeline == 1:
        folders = [f"mp_rank_{t:02}" for t in range(tensor)]
    return {f"{folder}/{name}": model for folder in folders for name in ("model_optim_rng.pt", "distrib_optim.pt")}


def deepspeed(data: int = 3, model: int = 2, prefix: str = "") -> Files:
    said = {"dp_world_size": data, "mp_world_size": model, "ds_config": {"zero_optimization": {"stage": 2}}}
    files = {f"mp_rank_{part:02}_model_states.pt": torch_file(said) for part in range(model)}
    for rank in range(data):
        for part in range(model):
            files[f"{prefix}zero_pp_rank_{rank}_mp_rank_{part:02}_optim_states.pt"] = torch_file()
    return files


def transformers_model(shards: int = 3) -> Files:
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    index = {"metadata": {}, "weight_map": {f"layer.{at}": name for at, name in enumerate(names)}}
    whole = {"config.json": b'{"model_type": "gpt2"}', "model.safetensors.index.json": json.dumps(index).encode()}
    return {**whole, **dict.fromkeys(names, safetensors())}


def transformers_trainer(step: int, model: Files | None = None) -> Files:
    return {
        **(model or {"config.json": b"{}", "model.safetensors": safetensors()}),
        "optimizer.pt": torch_file(),
        "scheduler.pt": torch_file(),
        "rng_state.pth": torch_file(),
        "training_args.bin": torch_file(),
        "trainer_state.json": json.dumps({"global_step": step, "log_history": []}).encode(),
    }


def adapter() -> Files:
    return {"adapter_model.safetensors": safetensors(), "adapter_config.json": b'{"r": 8}'}


def verl(ranks: int = 2) -> Files:
    kinds = ("model", "optim", "extra_state")
    names = [f"actor/{kind}_world_size_{ranks}_rank_{rank}.pt" for kind in kinds for rank in range(ranks)]
    return {"data.pt": torch_file(), **dict.fromkeys(names, torch_file())}


def lightning_fsdp() -> Files:
    return {"meta.pt": torch_file(), **dcp()}


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Put the files into a folder, which is returned."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
