"""How large a checkpoint is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainwarden.checkpoint.place import is_remote, place
from trainwarden.deadline import Deadline

_S3_SECONDS = 60.0


def size_of(path: "str | os.PathLike[str]") -> int | None:
    """Bytes of a file, or of all plain files below a folder or S3 prefix, links not counted; None if not to be found.

    It waits for the file system, and for S3 a minute.
    """
    try:
        if is_remote(path):
            return _in_s3(path)
        path = Path(path)
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        return sum(_sizes_below(path))
    except (OSError, ValueError):
        return None


def _in_s3(path: "str | os.PathLike[str]") -> int | None:
    deadline = Deadline(_S3_SECONDS)
    tree = place(path, deadline)
    if tree.kind("") == "file":
        return tree.size("")
    listing = tree.walk("", deadline)
    return None if listing.troubles else listing.plain_bytes


def _sizes_below(folder: Path) -> Iterator[int]:
    def fail(error: OSError) -> None:
        raise error

    for base, _, names in os.walk(folder, onerror=fail):
        for name in names:
            status = os.lstat(os.path.join(base, name))  # noqa: PTH118  # thousands of shards need no Path each
            if stat.S_ISREG(status.st_mode):
                yield status.st_size
