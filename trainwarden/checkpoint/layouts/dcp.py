"""torch.distributed.checkpoint: shards `__R_S.distcp`, and `.metadata`, which is written last and lists them.

Megatron, FSDP, TorchTitan, Lightning and accelerate write this inside layouts of their own.

A shard is a row of items, each a zip file of `torch.save`, whose places `.metadata` holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from trainwarden.checkpoint import archive, pickle_scan
from trainwarden.checkpoint.contents import MAX_READ, CheckpointFiles, DamagedFile
from trainwarden.checkpoint.file_checks import check_holes
from trainwarden.checkpoint.verdict import Findings, abbreviated
from trainwarden.deadline import DeadlineExceeded

_METADATA = ".metadata"
_KEYS = ("relative_path", "offset", "length")
_OWN_METADATA = re.compile(r"__[0-9]+\.metadata")
_SHARD_NAME = re.compile(rb"__[0-9]{1,9}_[0-9]{1,9}\.distcp")
_BLOCK_BYTES = 2**23
_LONGEST_NAME = 64
# The `.metadata` of thousands of ranks is too large to parse: it is searched for names then, up to this size.
_MAX_SEARCHED = 2**31
# How many items of a shard are read.
_MAX_ITEMS = 4
_HEAD_BYTES = 16
# The clocks of hosts differ, and so may the times of the files that they write.
_CLOCK_SECONDS = 5.0
# Files that are copied one after the other end at regular times; between two saves there is more time than in them.
_GAP_RATIO = 4.0


@dataclass
class _Shard:
    """What `.metadata` promises of a shard: its least size, its last item, and a sample of its items, (begin, end)."""

    size: int = 1
    last: tuple[int, int] = (0, 0)
    items: list[tuple[int, int]] = field(default_factory=list)
    _count: int = 0
    _stride: int = 1

    def add(self, begin: int, end: int) -> None:
        """Add an item."""
        self.size = max(self.size, end)
        self.last = max(self.last, (begin, end))
        if self._count % self._stride == 0:
            self.items.append((begin, end))
        if len(self.items) > _MAX_ITEMS:
            self.items, self._stride = self.items[::2], self._stride * 2
        self._count += 1


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
        promised = {name: _Shard() for name in _search(contents, path)}
        report.doubts.append(f"{path} is too large to compare lengths; only the presence of its shards was checked")
    else:
        promised = _promised(contents, path)
    if not promised:
        report.doubts.append(f"{path} names no shard")
        return
    contents.require(report, [folder + name for name in promised], f"{path} promises")
    short = [name for name, shard in promised.items() if 0 < contents.files.get(folder + name, 0) < shard.size]
    if short:
        report.defects.append(f"{len(short)} of {len(promised)} shards shorter than {path} says: {abbreviated(short)}")
    report.proofs.append(f"the {len(promised)} shards that {path} promises are there, as long as it says")
    _check_times(contents, path, [folder + name for name in promised], report)
    if contents.reads_are_cheap and not report.defects:
        _check_items(contents, path, {folder + name: shard for name, shard in promised.items()}, report)


def _promised(contents: CheckpointFiles, path: str) -> dict[str, _Shard]:
    """Return each listed shard by its name."""
    promised: dict[str, _Shard] = {}
    for shard, begin, end in _items(contents, path):
        promised.setdefault(shard, _Shard()).add(begin, end)
    return promised


def _items(contents: CheckpointFiles, path: str) -> Iterator[tuple[str, int, int]]:
    """Yield the shard, begin and end of each item."""
    shard, offset = "", 0
    try:
        for key, value in pickle_scan.key_values(contents.read_all(path), _KEYS, contents.deadline):
            if key == "relative_path" and isinstance(value, str):
                shard, offset = value, 0
            elif key == "offset" and isinstance(value, int):
                offset = value
            elif key == "length" and isinstance(value, int) and shard:
                yield shard, offset, offset + value
    except DamagedFile as error:
        raise DamagedFile(f"{path} is {error}") from error


def _check_times(contents: CheckpointFiles, path: str, shards: list[str], report: Findings) -> None:
    """Check whether some shards were written by a later save than `.metadata`, which a save writes last.

    A copy may have lost the times of the files: they are then those of the copy, one regularly after the other. Where
    all shards are later than `.metadata`, it was copied first, or is all that an interrupted save left to be written.
    """
    written = contents.modified.get(path)
    times = sorted(contents.modified[shard] for shard in shards if shard in contents.modified)
    if written is None or not times:
        return
    late = [time for time in times if time > written + _CLOCK_SECONDS]
    if not late:
        return
    earlier = sorted([written, *(time for time in times if time <= written + _CLOCK_SECONDS)])
    gap = late[0] - earlier[-1]
    others = max((after - before for part in (earlier, late) for before, after in pairwise(part)), default=0.0)
    if len(late) == len(times):
        report.remarks.append(f"all shards are {gap:.0f} s newer than {path}, or more")
    elif gap > others * _GAP_RATIO:
        report.suspicions.append(
            f"{len(late)} of {len(times)} shards are {gap:.0f} s newer than {path}, which is written last, or more: "
            f"a save over this checkpoint was interrupted, or a copy of it"
        )


def _check_items(contents: CheckpointFiles, path: str, shards: dict[str, _Shard], report: Findings) -> None:
    """Check some items of each shard where `.metadata` promises them, the end of the last one, and holes."""
    samples = []
    try:
        for name, shard in shards.items():
            if contents.files.get(name):
                with contents.keep_open(name):
                    heads = [contents.read(name, begin, min(_HEAD_BYTES, end - begin)) for begin, end in shard.items]
                    begin, end = shard.last
                    tail = contents.read(name, max(begin, end - archive.END_BYTES), min(archive.END_BYTES, end - begin))
                    samples.append((name, shard, heads, tail))
                    check_holes(contents, name, partial(_items_at, contents, path, name), report)
    except (OSError, DeadlineExceeded) as error:
        report.unread.append(f"the shards of {path} could not all be read: {error}")
    # Other writers may compress the items; then their heads are not known.
    are_zips = any(head.startswith(archive.START) for _, _, heads, _ in samples for head in heads)
    for name, shard, heads, tail in samples:
        for (begin, _), head in zip(shard.items, heads, strict=True):
            if are_zips and not head.startswith(archive.START):
                what = "zeros" if not head.strip(b"\0") else "something else"
                report.defects.append(f"{name} holds {what} at {begin}, where {path} promises an item")
                break
        else:
            if are_zips and not tail.startswith(archive.END):
                what = "zeros" if not tail.strip(b"\0") else "something else"
                report.defects.append(f"{name} holds {what} where its last item should end, at {shard.last[1]}")
            elif not are_zips and heads and not (b"".join(heads) + tail).strip(b"\0"):
                report.defects.append(f"{name} holds nothing but zeros wherever it was read")


def _items_at(contents: CheckpointFiles, path: str, name: str, damaged: tuple[int, int]) -> list[tuple[int, int]]:
    """Return start and length of the items of a shard that a range touches."""
    shard = name.removeprefix(path.removesuffix(_METADATA))
    found = {
        (begin, end - begin)
        for one, begin, end in _items(contents, path)
        if one == shard and begin < damaged[1] and damaged[0] < end
    }
    return sorted(found)


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
