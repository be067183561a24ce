"""Reads the kernel's log where the kernel offers it: /dev/kmsg."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.kernel.line import KernelLine, parse_record

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KernelLine", "KernelLog", "KernelLogUnreadable"]

# The kernel gives one record a read, and refuses a buffer that is too small for it.
_READ_BYTES = 65536
# Of a full ring of a large machine not all at once, for want of memory: what is left comes with the next call.
MAX_LINES = 8192
_REFUSED = {
    errno.EPERM: "not permitted: kernel.dmesg_restrict is 1, which asks for CAP_SYSLOG",
    errno.EACCES: "not permitted to this user",
    errno.ENOENT: "does not exist here; a container needs it mounted",
}


class KernelLogUnreadable(Exception):
    """The kernel's log cannot be read; says why."""


class KernelLog:
    """The lines of /dev/kmsg, or of a file or FIFO that holds such records. For one thread.

    `lost` counts the lines that the ring dropped, since the first one that was read, before they could be read.
    """

    def __init__(self, path: Path) -> None:
        self.lost = 0
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""
        self._last: int | None = None

    def read(self) -> list[KernelLine]:
        """Return what is new since the last call, at first what the ring holds; `MAX_LINES` at most; never waits.

        Raises:
            KernelLogUnreadable: it cannot be opened or read.
        """
        try:
            descriptor = self._opened()
            return self._new_lines(descriptor)
        except OSError as error:
            self.close()
            reason = _REFUSED.get(error.errno or 0, error.strerror or str(error))
            raise KernelLogUnreadable(f"{self._path}: {reason}") from error

    def close(self) -> None:
        """Let go of it; the next `read` begins with what the ring holds then, as far as it was not read before."""
        descriptor, self._descriptor, self._rest = self._descriptor, None, b""
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._descriptor

    def _new_lines(self, descriptor: int) -> list[KernelLine]:
        lines: list[KernelLine] = []
        while len(lines) < MAX_LINES:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BrokenPipeError:
                continue  # the ring overtook us: the next read gives the oldest record that is left
            except BlockingIOError:
                break
            if not data:
                break
            *complete, rest = (self._rest + data).split(b"\n")
            self._rest = rest[:_READ_BYTES]
            lines.extend(line for record in complete if (line := self._counted(record)) is not None)
        return lines

    def _counted(self, record: bytes) -> KernelLine | None:
        line = parse_record(record)
        if line is None:
            return None
        if self._last is not None:
            if line.sequence <= self._last:
                return None  # read before the log was opened anew
            self.lost += line.sequence - self._last - 1
        self._last = line.sequence
        return line
