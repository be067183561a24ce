"""The trace of a crash of this process's interpreter, such as a segmentation fault, written by `faulthandler`."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
from pathlib import Path
from typing import Any

from trainwarden.descriptor import HeldDescriptor
from trainwarden.record.crash import HEADER_BYTES, OLDER, header, read_crash, trace_path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

logger = logging.getLogger("trainwarden")


class CrashTrace:
    """Lets `faulthandler` write into the record, from `open()` until `close()`.

    It has one output only. Where the program has enabled it for a file object, such as stderr, that one is enabled
    again at the end. An output that was given as a number cannot be found out, and so stays.
    """

    def __init__(self, folder: Path, rank: int, key: str) -> None:
        self._path = trace_path(folder, rank)
        self._key = key
        self._descriptor: HeldDescriptor | None = None
        # What faulthandler was given: it does not close its descriptor.
        self._stream: Any = None
        self._programs_output: Any = None
        self._closed = True

    def open(self) -> None:
        """Enable it; where that fails, log a warning and go on without."""
        self._closed = False
        try:
            self._keep_older()
            if faulthandler.is_enabled() and _output() is None:
                self._path.unlink(missing_ok=True)
                return
            self._enable(os.O_TRUNC)
        except (OSError, ValueError, RuntimeError) as error:
            logger.warning("a crash of the interpreter could not be traced to %s: %s", self._path, error)

    def check(self) -> None:
        """Enable it again if the program has closed its file, or has enabled it for another one.

        Where the program has disabled it, it stays disabled.

        Raises:
            OSError: the file cannot be opened again.
        """
        if self._closed or self._stream is None or not faulthandler.is_enabled():
            return
        is_open = self._descriptor is not None and self._descriptor.is_open()
        output = _output()
        if output is not None and not (is_open and output is self._stream):
            self._enable()

    def close(self) -> None:
        """Restore the output of the program and remove the file, once the end is recorded. May be called again."""
        if self._stop():
            with contextlib.suppress(OSError):
                self._path.unlink()

    def abandon(self) -> None:
        """Restore the output in a forked child, whose crash is not its parent's; the file stays."""
        self._stop()

    def _enable(self, flags: int = 0) -> None:
        output = _output() if faulthandler.is_enabled() else None
        if output is not self._stream or self._stream is None:
            self._programs_output = output
        if self._descriptor is None or not self._descriptor.is_open():
            self._descriptor = HeldDescriptor(os.open(self._path, _FLAGS | flags, 0o666))
            number = self._descriptor.number
            if os.fstat(number).st_size == 0:
                os.write(number, header(self._key))
            self._stream = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115  # a descriptor has no path
        faulthandler.enable(self._stream)

    def _stop(self) -> bool:
        descriptor, self._descriptor, self._closed = self._descriptor, None, True
        if descriptor is None:
            return False
        if faulthandler.is_enabled() and _output() is self._stream:
            faulthandler.disable()
            if self._programs_output is not None:
                # ValueError: the program has closed its file. RuntimeError: it has none, as a closed stderr.
                with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
                    faulthandler.enable(self._programs_output)
        self._stream = self._programs_output = None
        descriptor.close()
        return True

    def _keep_older(self) -> None:
        # Rank 0 may not have recorded yet how the attempt before ended.
        if not self._path.exists() or self._path.stat().st_size <= HEADER_BYTES:
            return
        crash = read_crash(self._path)
        if crash and crash.attempt_key != self._key:
            self._path.replace(self._path.with_name(self._path.name + OLDER))


def _output() -> Any:
    """Return the file object that faulthandler writes a fatal error to; None if it was given a number."""
    # Its other files, for dumps on request, come before.
    files = [one for one in gc.get_referents(faulthandler) if hasattr(one, "fileno")]
    return files[-1] if files else None
