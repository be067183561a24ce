"""How large a checkpoint is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def size_of(path: Path) -> int | None:
    """Bytes of a file, or of all plain files below a folder, links not counted; None if that cannot be found out."""
    try:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        return sum(_sizes_below(path))
    except (OSError, ValueError):
        return None


def _sizes_below(folder: Path) -> Iterator[int]:
    def fail(error: OSError) -> None:
        raise error

    for base, _, names in os.walk(folder, onerror=fail):
        for name in names:
            status = os.lstat(os.path.join(base, name))  # noqa: PTH118  # thousands of shards need no Path each
            if stat.S_ISREG(status.st_mode):
                yield status.st_size
