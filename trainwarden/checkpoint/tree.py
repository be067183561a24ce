"""The common interface of a folder and an S3 prefix that hold checkpoints."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainwarden.deadline import Deadline

# The most files that are listed below one path.
MAX_FILES = 200_000
MAX_MANIFEST_BYTES = 64 * 2**20


class NotThere(OSError):
    """The path does not exist."""


@dataclass(frozen=True)
class TreeEntry:
    """One name in a folder. `kind` and `size`, in bytes, follow links; `target` is the text of a link."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int = 0
    target: str | None = None


@dataclass
class Listing:
    """All files below a path by their relative names, with sizes in bytes.

    `plain_bytes` is the size of the files reached without a link, as in `size_of`. `special` are neither files nor
    folders, `ignored` no part of a checkpoint. `modified` are the times of the last change, Unix seconds, where each
    file has one of its own. `errors` describe what could not be listed: if there are any, files that are not listed may
    exist.
    """

    files: dict[str, int] = field(default_factory=dict)
    modified: dict[str, float] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    plain_bytes: int = 0


class Tree(Protocol):
    """Files below a root. Paths are relative to it and use slashes; `""` is the root itself.

    `reads_are_cheap`: whether some reads in each of thousands of files take no more than seconds.
    """

    reads_are_cheap: bool

    def kind(self, path: str) -> Literal["file", "folder", "other"]:
        """Return what the path is.

        Raises:
            NotThere: it does not exist.
            OSError: it cannot be read.
        """

    def entries(self, path: str, deadline: Deadline) -> list[TreeEntry]:
        """List the folder, up to MAX_FILES names.

        Raises:
            OSError: it cannot be read, or holds more.
            DeadlineExceeded: the deadline has passed.
        """

    def walk(self, path: str, deadline: Deadline) -> Listing:
        """List all files below the folder. Never raises."""

    def size(self, path: str) -> int:
        """Return the bytes of the file.

        Raises:
            OSError: it cannot be read.
        """

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes of a plain file from `start` on.

        Raises:
            OSError: it cannot be read.
        """

    def keep_open(self, path: str) -> AbstractContextManager[None]:
        """Return a context in which all reads of the file open it once, at the first."""

    def hole(self, path: str, start: int) -> tuple[int, int] | None:
        """Return begin and end of the first range from `start` on for which the file system stores nothing, if any.

        Raises:
            OSError: the file cannot be read.
        """

    def manifest(self, path: str, *, is_file: bool) -> bytes | None:
        """Return the manifest of digests of the checkpoint; None if there is none.

        Raises:
            OSError: it cannot be read.
        """

    def address(self, path: str) -> str:
        """Return the full path or URL."""
