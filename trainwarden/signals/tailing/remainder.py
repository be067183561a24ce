"""A reader's position in a file, and the search for its unread rest after a rotation."""

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainwarden.signals.tailing.opening import Refused, open_log

# Bytes remembered of the beginning of a file and of what was read last.
FINGERPRINT = 256
# With less than this before it, a position is not unique.
_CERTAIN = 64
_ENTRIES = 4096


@dataclass(frozen=True)
class Position:
    """A position in a file: its offset, and bytes that distinguish this file from another of the same name.

    Attributes:
        head: the first bytes of the file.
        before: the bytes right before the offset.
    """

    inode: int
    offset: int
    head: bytes
    before: bytes

    def as_json(self) -> dict[str, Any]:
        """Return the object that `of_json` reads."""
        return {"inode": self.inode, "offset": self.offset, "head": self.head.hex(), "before": self.before.hex()}

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> "Position":
        """Return the position that an object of `as_json` describes.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        position = Position(
            int(value["inode"]), int(value["offset"]), bytes.fromhex(value["head"]), bytes.fromhex(value["before"])
        )
        if position.offset < max(len(position.head), len(position.before)):
            raise ValueError(f"offset: {position.offset} is before what stands in front of it")
        return position


def is_at(descriptor: int, position: Position) -> bool:
    """Return whether the bytes before the position are still those that were read."""
    before = os.pread(descriptor, len(position.before), position.offset - len(position.before))
    return before == position.before and os.pread(descriptor, len(position.head), 0) == position.head


def find_remainder(path: str, position: Position, roots: Sequence[str], but: int | None = None) -> int | None:
    """Open the file that holds what was read up to the position, under another name beside `path`.

    That is the same file renamed, or else a copy of it with more in it. `but` is a descriptor that it must not be.
    """
    folder, name = os.path.split(path)
    folder = folder or "."
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.inode()) for entry in itertools.islice(entries, _ENTRIES)]
    except OSError:
        return None
    excluded = os.fstat(but).st_ino if but is not None else None
    renamed = [other for other, inode in found if inode == position.inode and inode != excluded and other != name]
    copies = []
    if len(position.before) >= _CERTAIN:
        copies = [other for other, inode in found if other.startswith(name) and other != name and inode != excluded]
    for other in (*renamed, *copies):
        descriptor = _open_at(f"{folder}/{other}", position, roots)
        if descriptor is not None:
            return descriptor
    return None


def standing(path: str, positions: Iterable[Position], roots: Sequence[str]) -> Position | None:
    """Return the one of the positions that is in the file at `path`, None if none is; raise `OSError` or `Refused`."""
    candidates = [position for position in positions if position.offset]
    if not candidates:
        return None
    descriptor = open_log(path, roots)
    try:
        inode = os.fstat(descriptor).st_ino
        for position in candidates:
            same = position.inode == inode or len(position.before) >= _CERTAIN
            if same and is_at(descriptor, position):
                return replace(position, inode=inode)
        return None
    finally:
        os.close(descriptor)


def copied_so_far(path: str, originals: Iterable[str], roots: Sequence[str]) -> Position | None:
    """Return the end of a file that holds the beginning of one of the originals, or all of it; else None.

    Only its first and its last bytes are compared. A file with fewer than 64 bytes may hold them by chance.
    """
    with contextlib.suppress(OSError, Refused):
        descriptor = open_log(path, roots)
        try:
            status = os.fstat(descriptor)
            size = min(FINGERPRINT, status.st_size)
            head, before = os.pread(descriptor, size, 0), os.pread(descriptor, size, status.st_size - size)
        finally:
            os.close(descriptor)
        end = Position(status.st_ino, status.st_size, head, before)
        if size >= _CERTAIN and any(_holds(original, end, roots) for original in originals):
            return end
    return None


def _holds(path: str, position: Position, roots: Sequence[str]) -> bool:
    descriptor = _open_at(path, position, roots)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def _open_at(path: str, position: Position, roots: Sequence[str]) -> int | None:
    with contextlib.suppress(OSError, Refused):
        descriptor = open_log(path, roots)
        with contextlib.suppress(OSError):
            if is_at(descriptor, position):
                return descriptor
        os.close(descriptor)
    return None
