"""A file system that never answers: FUSE whose server does not read what it is asked."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

MNT_DETACH = 2


@contextlib.contextmanager
def silent_mount(folder: Path) -> Iterator[None]:
    """Mount it; raises `OSError` where that is not allowed. At the end every call that waits for it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"silent", os.fsencode(folder), b"fuse", 0, options):
        os.close(device)
        raise OSError(ctypes.get_errno(), "FUSE cannot be mounted")
    try:
        yield
    finally:
        os.close(device)
        libc.umount2(os.fsencode(folder), MNT_DETACH)
