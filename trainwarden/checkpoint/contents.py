"""The files of one checkpoint, listed once and read in small pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from trainwarden.checkpoint.tree import Listing, Tree
from trainwarden.checkpoint.verdict import Findings, abbreviated
from trainwarden.deadline import Deadline

# The most bytes that are read of a header, an index or a pickle.
MAX_READ = 64 * 2**20


class DamagedFile(Exception):
    """The content of a file shows that it, or a file that it refers to, is incomplete."""


class CheckpointFiles:
    """The files of one checkpoint.

    Args:
        tree: that holds the checkpoint.
        base: its path in the tree.
        listing: its files.
        deadline: for all reads.
        is_file: whether the checkpoint is a single file; its listing holds that alone.

    Reading raises OSError, `DeadlineExceeded` where the deadline has passed, and `DamagedFile`.
    """

    def __init__(self, tree: Tree, base: str, listing: Listing, deadline: Deadline, *, is_file: bool = False) -> None:
        self._tree = tree
        self._is_file = is_file
        self._base = base
        self.files = listing.files
        self.modified = listing.modified
        self.special = listing.special
        self.ignored = listing.ignored
        self.deadline = deadline
        # If the listing has errors, files that are not listed may exist.
        self.listed_all = not listing.errors
        self.folders: dict[str, set[str]] = {}
        for path in listing.files:
            folder, slash, name = path.rpartition("/")
            self.folders.setdefault(folder + slash, set()).add(name)

    @property
    def name(self) -> str:
        """The last part of the checkpoint's path."""
        return self._tree.address(self._base).rstrip("/").rpartition("/")[2]

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes of a file from `start` on."""
        self.deadline.check()
        # An offset from a damaged header may be anything.
        size = self.files.get(path, 0)
        if not 0 <= start < size:
            return b""
        return self._tree.read(self._in_tree(path), start, min(length, size - start))

    def keep_open(self, path: str) -> AbstractContextManager[None]:
        """Return a context in which all reads of the file open it once."""
        return self._tree.keep_open(self._in_tree(path))

    @property
    def reads_are_cheap(self) -> bool:
        """Whether some reads in each of thousands of files take no more than seconds."""
        return self._tree.reads_are_cheap

    def hole(self, path: str, start: int = 0) -> tuple[int, int] | None:
        """Return begin and end of the first range from `start` on for which the file system stores nothing, if any."""
        self.deadline.check()
        return self._tree.hole(self._in_tree(path), start) if start < self.files.get(path, 0) else None

    def _in_tree(self, path: str) -> str:
        if self._is_file:
            return self._base
        return f"{self._base}/{path}" if self._base else path

    def read_all(self, path: str) -> bytes:
        """Read a file of up to MAX_READ bytes."""
        size = self.files[path]
        if size > MAX_READ:
            raise OSError(f"{path} has {size} bytes, too many to be read")
        data = self.read(path, 0, size)
        if len(data) < size:
            raise DamagedFile(f"{path} is cut off at {len(data)} of {size} bytes")
        return data

    def json(self, path: str) -> dict[str, Any]:
        """Read a JSON object from a file."""
        try:
            document = json.loads(self.read_all(path))
        except (ValueError, RecursionError) as error:
            raise DamagedFile(f"{path} is no JSON") from error
        if not isinstance(document, dict):
            raise DamagedFile(f"{path} is no JSON object")
        return document

    def require(self, report: Findings, paths: Iterable[str], why: str) -> None:
        """Mark the files as claimed, and report missing and empty ones as defects.

        Args:
            report: to add to.
            paths: of the files.
            why: the reason why they must exist, for the evidence.
        """
        wanted = list(paths)
        report.claimed.update(wanted)
        missing = [path for path in wanted if path not in self.files]
        empty = [path for path in wanted if self.files.get(path) == 0]
        of = f"{len(wanted)} files" if len(wanted) > 1 else "1 file"
        if missing and self.listed_all:
            report.defects.append(f"{len(missing)} of {of} missing that {why}: {abbreviated(missing)}")
        if empty:
            report.defects.append(f"{len(empty)} of {of} empty that {why}: {abbreviated(empty)}")
