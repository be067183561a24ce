"""The trace of a crash of this process's interpreter, such as a segmentation fault, written by `faulthandler`."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
from pathlib import Path

from trainwarden.record.crash import HEADER_BYTES, OLDER, header, read_crash, trace_path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

logger = logging.getLogger("trainwarden")


class CrashTrace:
    """Lets `faulthandler` write into the record, from `open()` until `close()`.

    Where the user has enabled `faulthandler` already, it keeps writing to the user's file.
    """

    def __init__(self, folder: Path, rank: int, key: str) -> None:
        self._path = trace_path(folder, rank)
        self._key = key
        self._descriptor: int | None = None

    def open(self) -> None:
        """Enable it; where that fails, log a warning and go on without."""
        try:
            self._keep_older()
            if faulthandler.is_enabled():
                self._path.unlink(missing_ok=True)
                return
            self._descriptor = os.open(self._path, _FLAGS, 0o666)
            os.write(self._descriptor, header(self._key))
            faulthandler.enable(self._descriptor)
        except OSError as error:
            logger.warning("a crash of the interpreter could not be traced to %s: %s", self._path, error)

    def close(self) -> None:
        """Disable it and remove the file, once the end is recorded. May be called again."""
        if self._stop():
            with contextlib.suppress(OSError):
                self._path.unlink()

    def abandon(self) -> None:
        """Disable it in a forked child, whose crash is not its parent's; the file stays."""
        self._stop()

    def _stop(self) -> bool:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return False
        faulthandler.disable()
        with contextlib.suppress(OSError):
            os.close(descriptor)
        return True

    def _keep_older(self) -> None:
        # Rank 0 may not have recorded yet how the attempt before ended.
        if not self._path.exists() or self._path.stat().st_size <= HEADER_BYTES:
            return
        crash = read_crash(self._path)
        if crash and crash.attempt_key != self._key:
            self._path.replace(self._path.with_name(self._path.name + OLDER))
