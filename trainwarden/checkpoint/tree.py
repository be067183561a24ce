"""Where checkpoints lie: a folder or a prefix in S3, seen alike."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainwarden.deadline import Deadline

# As many files as this are looked at below one place.
MAX_FILES = 200_000


class NotThere(OSError):
    """There is neither a file nor a folder of that name."""


@dataclass(frozen=True)
class Entry:
    """One name in a folder, links followed. `target` is what a link says."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int = 0
    target: str | None = None


@dataclass
class Listing:
    """Every file below a place with its size in bytes, names relative and with slashes.

    `plain_bytes` counts files that were reached without a link, as `size_of` does. `others` are neither files nor
    folders. `troubles` says what could not be seen: where there is any, what is absent here need not be missing.
    """

    files: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    plain_bytes: int = 0


class Tree(Protocol):
    """A place with files in it. Paths are relative to it and use slashes; `""` is the place itself."""

    def kind(self, path: str) -> Literal["file", "folder", "other"]:
        """What is there.

        Raises:
            NotThere: nothing.
            OSError: it cannot be looked at.
        """

    def entries(self, path: str, deadline: Deadline) -> list[Entry]:
        """What the folder holds, at most MAX_FILES of it.

        Raises:
            OSError: it cannot be read.
            DeadlineExceeded: it takes too long.
        """

    def walk(self, path: str, deadline: Deadline) -> Listing:
        """Every file below the folder; never raises."""

    def size(self, path: str) -> int:
        """Bytes of the file.

        Raises:
            OSError: it cannot be looked at.
        """

    def read(self, path: str, start: int, length: int) -> bytes:
        """The bytes of a plain file from `start` on; fewer where it ends before.

        Raises:
            OSError: it cannot be read.
        """

    def address(self, path: str) -> str:
        """The whole name by which others find it."""
