"""NCCL's flight recorder in PyTorch: has a rank dump it, and returns the dump."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainwarden.record.capture import FLIGHT, LIMITS
from trainwarden.record.document import FileContent, read_file

_PIPE, _FILE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
_WAIT_SECONDS = 8.0
_POLL_SECONDS = 0.1


def flight_recorder_dump(rank: int, environ: Mapping[str, str] = os.environ) -> Callable[[], bytes] | None:
    """Return what gets the dump of this rank; None where the environment configures no file for it.

    With `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` a new dump is requested. Without, the one that is there is returned.
    """
    prefix, pipe = environ.get(_FILE), environ.get(_PIPE)
    if not prefix:
        return None
    path = Path(f"{prefix}{rank}")
    return lambda: _dump(path, Path(f"{pipe}{rank}.pipe") if pipe else None)


def _dump(path: Path, pipe: Path | None) -> bytes:
    before = _state(path)
    if pipe is not None and _requests(pipe):
        deadline = time.monotonic() + _WAIT_SECONDS
        size = None
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            now = _state(path)
            # Until it grows no more: PyTorch writes it in place.
            if now is not None and now != before and now == size:
                break
            size = now
    content = read_file(path, LIMITS[FLIGHT])
    return content.data if isinstance(content, FileContent) and content.owner == os.geteuid() else b""


def _requests(pipe: Path) -> bool:
    """Write into the pipe, if it is this user's and PyTorch reads it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISFIFO(status.st_mode) and status.st_uid == os.geteuid():
                os.write(descriptor, b"1")
                return True
        finally:
            os.close(descriptor)
    return False


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
