"""The files of processes in procfs, read with few calls: a node may have thousands of processes."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from trainwarden.beneath import READ

if TYPE_CHECKING:
    from collections.abc import Container

_MAX_ENVIRON = 2**20
_MAX_VALUE = 512


def read_file(path: str, limit: int, owner: int | None = None) -> bytes:
    """Return up to `limit` bytes of a file, which must belong to the user `owner` (uid) unless it is None.

    Raises:
        PermissionError: it belongs to another user, or may not be read.
        OSError: it cannot be read.
    """
    # Not open(): of many processes this read is most of the cost.
    descriptor = os.open(path, READ | os.O_NOFOLLOW)
    try:
        if owner is not None and os.fstat(descriptor).st_uid != owner:
            raise PermissionError(errno.EACCES, "belongs to another user", path)
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 65536))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_environment(process: str, names: Container[bytes], owner: int | None = None) -> dict[str, str]:
    """Return those of the variables that a process was started with, each cut at 512 bytes.

    Args:
        process: its folder in procfs.
        names: of the variables, in ASCII.
        owner: uid of the user whose process it must be; any if None.

    Raises:
        OSError: as `read_file`.
    """
    found: dict[str, str] = {}
    for item in read_file(f"{process}/environ", _MAX_ENVIRON, owner).split(b"\0"):
        name, _, value = item.partition(b"=")
        if name in names:
            found.setdefault(name.decode(), value[:_MAX_VALUE].decode("utf-8", "replace"))
    return found
