"""The errors of the GPUs, each counted once, whoever tells of it first."""

from __future__ import annotations

import threading
from dataclasses import dataclass

# Codes after which somebody, or something, has to act: there from the start, so that `increase` sees the first one.
ACTION_CODES = (13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)
# NVML tells of an error at once, the kernel's log is read at every interval.
SAME_SECONDS = 10.0


@dataclass
class _Event:
    time: float
    sources: set[str]


@dataclass(frozen=True)
class Count:
    """How often an error came, and when last (Unix seconds)."""

    number: int = 0
    last: float | None = None


class Ledger:
    """Counts errors by GPU and code. For several threads."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], Count] = {}
        self._recent: dict[tuple[str, int], list[_Event]] = {}
        self._lock = threading.Lock()

    def report(self, bus: str, code: int, when: float, source: str, heard: float | None = None) -> None:
        """Count an error unless another source told of the same.

        Args:
            bus: the GPU.
            code: the error.
            when: when it happened, Unix seconds.
            source: who says so; each tells of an error once.
            heard: when it was said, if that is known better.
        """
        key = (bus, code)
        at = when if heard is None else heard
        with self._lock:
            recent = [event for event in self._recent.get(key, []) if abs(at - event.time) <= SAME_SECONDS]
            self._recent[key] = recent
            for event in recent:
                if source not in event.sources:
                    event.sources.add(source)
                    return
            recent.append(_Event(at, {source}))
            known = self._counts.get(key, Count())
            self._counts[key] = Count(known.number + 1, max(when, known.last or when))

    def counts(self) -> dict[tuple[str, int], Count]:
        """Return what was counted."""
        with self._lock:
            return dict(self._counts)
