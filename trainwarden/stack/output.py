"""The command's own output, passed on to the terminal as it grows."""

from __future__ import annotations

import os
from pathlib import Path

from trainwarden.stack.terminal import Terminal

_CHUNK_BYTES = 256 * 1024


class Output:
    """Follows a log file across its replacement by the next attempt. Without a terminal it does nothing."""

    def __init__(self, path: Path, terminal: Terminal | None) -> None:
        self._path = path
        self._terminal = terminal
        self._offset = 0
        self._inode: int | None = None
        self._partial = b""

    def poll(self) -> None:
        """Pass on the lines that came since the last call."""
        if self._terminal is None:
            return
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self._partial = inode, 0, b""
                file.seek(self._offset)
                data = file.read(_CHUNK_BYTES)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._terminal.say("output", line.decode("utf-8", "replace").rstrip("\r"))
