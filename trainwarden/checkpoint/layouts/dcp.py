"""torch.distributed.checkpoint: shards `__R_S.distcp`, and `.metadata`, written last, which names them all.

Megatron, FSDP, TorchTitan, Lightning and accelerate write this inside layouts of their own.
"""

import re

from trainwarden.checkpoint import pickled
from trainwarden.checkpoint.contents import MAX_READ, Contents, Damaged
from trainwarden.checkpoint.verdict import Report, named

_METADATA = ".metadata"
_KEYS = ("relative_path", "offset", "length")
_OWN_METADATA = re.compile(r"__[0-9]+\.metadata")
_SHARD_NAME = re.compile(rb"__[0-9]{1,9}_[0-9]{1,9}\.distcp")
_BLOCK_BYTES = 2**23
_LONGEST_NAME = 64
# A `.metadata` of thousands of ranks is larger than what is taken apart: it is searched for names then.
_MAX_SEARCHED = 2**31


def look(contents: Contents) -> Report:
    """Every folder that holds `.metadata` or shards."""
    report = Report()
    for folder, names in sorted(contents.folders.items()):
        shards = {name for name in names if name.endswith(".distcp")}
        if shards or _METADATA in names:
            report.layouts.append("torch DCP")
            # An unpromised shard is that of a rank with nothing to save, and empty.
            report.claimed.update(folder + name for name in shards)
            report.claimed.add(folder + _METADATA)
            _judge(contents, folder, shards, report)
    return report


def _judge(contents: Contents, folder: str, shards: set[str], report: Report) -> None:
    path = folder + _METADATA
    if path not in contents.files:
        if any(_OWN_METADATA.fullmatch(name) for name in contents.folders[folder]):
            report.doubts.append(f"each rank of {folder or 'it'} wrote metadata of its own, and none says how many did")
        elif contents.seen_all:
            report.against.append(f"{path}, which is written last, is missing beside {len(shards)} shards")
        return
    if contents.files[path] == 0:
        report.against.append(f"{path} is empty")
        return
    if contents.files[path] > MAX_READ:
        promised = dict.fromkeys(_search(contents, path), 1)
        report.doubts.append(f"{path} is too large to compare lengths; that its shards are there was looked at")
    else:
        promised = _lengths(contents, path)
    if not promised:
        report.doubts.append(f"{path} names no shard")
        return
    contents.require(report, [folder + name for name in promised], f"{path} promises")
    short = [name for name, length in promised.items() if 0 < contents.files.get(folder + name, 0) < length]
    if short:
        report.against.append(f"{len(short)} of {len(promised)} shards shorter than {path} says: {named(short)}")
    report.proof.append(f"the {len(promised)} shards that {path} promises are there, as long as it says")


def _lengths(contents: Contents, path: str) -> dict[str, int]:
    """How many bytes each promised shard has at least."""
    promised: dict[str, int] = {}
    shard, offset = "", 0
    try:
        for key, value in pickled.pairs(contents.whole(path), _KEYS, contents.deadline):
            if key == "relative_path" and isinstance(value, str):
                shard, offset = value, 0
                promised.setdefault(shard, 1)
            elif key == "offset" and isinstance(value, int):
                offset = value
            elif key == "length" and isinstance(value, int) and shard:
                promised[shard] = max(promised[shard], offset + value)
    except Damaged as error:
        raise Damaged(f"{path} is {error}") from error
    return promised


def _search(contents: Contents, path: str) -> set[str]:
    """The names of shards anywhere in the file."""
    found: set[str] = set()
    size = contents.files[path]
    if size > _MAX_SEARCHED:
        raise OSError(f"{path} has {size} bytes, too many to be read")
    for start in range(0, size, _BLOCK_BYTES):
        block = contents.read(path, start, _BLOCK_BYTES + _LONGEST_NAME)
        found.update(name.decode() for name in _SHARD_NAME.findall(block))
    return found
