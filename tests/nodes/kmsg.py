"""Records as /dev/kmsg gives them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def record(sequence: int, text: str, *, priority: int = 3, microseconds: int = 5_000_000) -> bytes:
    """One record; `microseconds` by the clock of the kernel's log."""
    return f"{priority},{sequence},{microseconds},-;{text}\n".encode()


class KmsgFile:
    """A file of records that stands for the kernel's log."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kmsg"
        self.path.touch()
        self.sequence = 0

    def append(self, text: str, ago: float = 0.0, priority: int = 3) -> None:
        """Log a line, so many seconds ago."""
        logged = int((time.monotonic() - ago) * 1e6)
        with self.path.open("ab") as file:
            file.write(record(self.sequence, text, priority=priority, microseconds=logged))
        self.sequence += 1
