"""torch.distributed.checkpoint: shards `__R_S.distcp`, and `.metadata`, which is written last and lists them.

Megatron, FSDP, TorchTitan, Lightning and accelerate write this inside layouts of their own.
"""

from __future__ import annotations

import re

from trainwarden.checkpoint import pickle_scan
from trainwarden.checkpoint.contents import MAX_READ, CheckpointFiles, DamagedFile
from trainwarden.checkpoint.verdict import Findings, abbreviated

_METADATA = ".metadata"
_KEYS = ("relative_path", "offset", "length")
_OWN_METADATA = re.compile(r"__[0-9]+\.metadata")
_SHARD_NAME = re.compile(rb"__[0-9]{1,9}_[0-9]{1,9}\.distcp")
_BLOCK_BYTES = 2**23
_LONGEST_NAME = 64
# The `.metadata` of thousands of ranks is too large to parse: it is searched for names then, up to this size.
_MAX_SEARCHED = 2**31


def check(contents: CheckpointFiles) -> Findings:
    """Check each folder that holds `.metadata` or shards."""
    report = Findings()
    for folder, names in sorted(contents.folders.items()):
        shards = {name for name in names if name.endswith(".distcp")}
        if shards or _METADATA in names:
            report.layouts.append("torch DCP")
            # A shard that is not listed is an empty one, of a rank with nothing to save.
            report.claimed.update(folder + name for name in shards)
            report.claimed.add(folder + _METADATA)
            _check_folder(contents, folder, shards, report)
    return report


def _check_folder(contents: CheckpointFiles, folder: str, shards: set[str], report: Findings) -> None:
    path = folder + _METADATA
    if path not in contents.files:
        if any(_OWN_METADATA.fullmatch(name) for name in contents.folders[folder]):
            report.doubts.append(f"each rank of {folder or 'it'} wrote metadata of its own, and none says how many did")
        elif contents.listed_all:
            report.defects.append(f"{path}, which is written last, is missing beside {len(shards)} shards")
        return
    if contents.files[path] == 0:
        report.defects.append(f"{path} is empty")
        return
    if contents.files[path] > MAX_READ:
        promised = dict.fromkeys(_search(contents, path), 1)
        report.doubts.append(f"{path} is too large to compare lengths; only the presence of its shards was checked")
    else:
        promised = _lengths(contents, path)
    if not promised:
        report.doubts.append(f"{path} names no shard")
        return
    contents.require(report, [folder + name for name in promised], f"{path} promises")
    short = [name for name, length in promised.items() if 0 < contents.files.get(folder + name, 0) < length]
    if short:
        report.defects.append(f"{len(short)} of {len(promised)} shards shorter than {path} says: {abbreviated(short)}")
    report.proofs.append(f"the {len(promised)} shards that {path} promises are there, as long as it says")


def _lengths(contents: CheckpointFiles, path: str) -> dict[str, int]:
    """Return the minimum size in bytes of each listed shard."""
    promised: dict[str, int] = {}
    shard, offset = "", 0
    try:
        for key, value in pickle_scan.key_values(contents.read_all(path), _KEYS, contents.deadline):
            if key == "relative_path" and isinstance(value, str):
                shard, offset = value, 0
                promised.setdefault(shard, 1)
            elif key == "offset" and isinstance(value, int):
                offset = value
            elif key == "length" and isinstance(value, int) and shard:
                promised[shard] = max(promised[shard], offset + value)
    except DamagedFile as error:
        raise DamagedFile(f"{path} is {error}") from error
    return promised


def _search(contents: CheckpointFiles, path: str) -> set[str]:
    """Return the names of shards anywhere in the file."""
    found: set[str] = set()
    size = contents.files[path]
    if size > _MAX_SEARCHED:
        raise OSError(f"{path} has {size} bytes, too many to be read")
    for start in range(0, size, _BLOCK_BYTES):
        block = contents.read(path, start, _BLOCK_BYTES + _LONGEST_NAME)
        found.update(name.decode() for name in _SHARD_NAME.findall(block))
    return found
