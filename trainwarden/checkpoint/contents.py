"""The files of one checkpoint, listed once and read in small pieces."""

import json
from collections.abc import Iterable
from typing import Any

from trainwarden.checkpoint.tree import Listing, Tree
from trainwarden.checkpoint.verdict import Report, named
from trainwarden.deadline import Deadline

# No header, index or pickle of a checkpoint is read beyond this.
MAX_READ = 64 * 2**20


class Damaged(Exception):
    """What a file holds shows that it, or what it speaks of, is not whole."""


class Contents:
    """What a checkpoint consists of.

    Args:
        tree: where it lies.
        base: its path there.
        listing: its files.
        deadline: after which nothing more is read.
        is_file: whether the checkpoint is a single file; its listing holds that alone.

    Reading raises OSError, `DeadlineExceeded` where the deadline has passed, and `Damaged`.
    """

    def __init__(self, tree: Tree, base: str, listing: Listing, deadline: Deadline, *, is_file: bool = False) -> None:
        self._tree = tree
        self._is_file = is_file
        self._base = base
        self.files = listing.files
        self.others = listing.others
        self.deadline = deadline
        # Where not everything was seen, what is absent need not be missing.
        self.seen_all = not listing.troubles
        self.folders: dict[str, set[str]] = {}
        for path in listing.files:
            folder, slash, name = path.rpartition("/")
            self.folders.setdefault(folder + slash, set()).add(name)

    @property
    def name(self) -> str:
        """The last part of the checkpoint's own path."""
        return self._tree.address(self._base).rstrip("/").rpartition("/")[2]

    def read(self, path: str, start: int, length: int) -> bytes:
        """The bytes of a file from `start` on; fewer where it ends before."""
        self.deadline.check()
        # A damaged header may send us anywhere.
        size = self.files.get(path, 0)
        if not 0 <= start < size:
            return b""
        length = min(length, size - start)
        if self._is_file:
            return self._tree.read(self._base, start, length)
        return self._tree.read(f"{self._base}/{path}" if self._base else path, start, length)

    def whole(self, path: str) -> bytes:
        """All of a small file."""
        size = self.files[path]
        if size > MAX_READ:
            raise OSError(f"{path} has {size} bytes, too many to be read")
        data = self.read(path, 0, size)
        if len(data) < size:
            raise Damaged(f"{path} is cut off at {len(data)} of {size} bytes")
        return data

    def json(self, path: str) -> dict[str, Any]:
        """The JSON object in a file."""
        try:
            document = json.loads(self.whole(path))
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{path} is no JSON") from error
        if not isinstance(document, dict):
            raise Damaged(f"{path} is no JSON object")
        return document

    def require(self, report: Report, paths: Iterable[str], why: str) -> None:
        """Claim the files, and hold against the checkpoint that one is missing or empty."""
        wanted = list(paths)
        report.claimed.update(wanted)
        missing = [path for path in wanted if path not in self.files]
        empty = [path for path in wanted if self.files.get(path) == 0]
        of = f"{len(wanted)} files" if len(wanted) > 1 else "1 file"
        if missing and self.seen_all:
            report.against.append(f"{len(missing)} of {of} missing that {why}: {named(missing)}")
        if empty:
            report.against.append(f"{len(empty)} of {of} empty that {why}: {named(empty)}")
