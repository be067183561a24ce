"""One line of the kernel's log, and how a record of /dev/kmsg says it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True)
class KernelLine:
    """One line.

    Attributes:
        sequence: one more than that of the line before, unless lines in between were lost.
        boot_seconds: when it was said, on the kernel's own clock: about seconds since boot.
        level: 0 emergency, 3 error, 4 warning, 6 information.
        text: without what stands before it; never a line break at its end.
    """

    sequence: int
    boot_seconds: float
    level: int
    text: str

    @property
    def time(self) -> float:
        """When it was said, Unix seconds, never ahead of now: the kernel's clock for its log may drift by seconds."""
        now = time.time()
        return min(now, now - time.monotonic() + self.boot_seconds)


def parse_record(line: bytes) -> KernelLine | None:
    """Return the line that a record of /dev/kmsg begins with; None for what continues one, and for what is none."""
    match = _RECORD.fullmatch(line)
    if match is None:
        return None
    text = _ESCAPED.sub(lambda escaped: bytes([int(escaped[1], 16)]), match[4])
    # The priority holds the facility as well, above its lowest three bits.
    return KernelLine(int(match[2]), int(match[3]) / 1e6, int(match[1]) & 7, text.decode("utf-8", "replace").rstrip())
