"""All processes of the node, each read when it is new and once a minute after that."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu_jobs.process import NOTHING, Work, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_PROCESSES = 20_000
# A process may exec another program with another environment: a young one does, an old one may.
YOUNG_SECONDS = 10.0
AGAIN_SECONDS = 60.0
# One that works for a run opens its GPUs when it has loaded what it needs.
WAITING_SECONDS = 15.0


@dataclass
class _Known:
    identity: tuple[int, int]
    work: Work
    since: float
    read_at: float


class Processes:
    """The processes that work for a job or a run.

    Args:
        procfs: where /proc is mounted.
        now: the clock, monotonic.
    """

    def __init__(self, procfs: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._now = now
        self._known: dict[str, _Known] = {}
        self.reads = 0

    def working(self) -> list[Work]:
        """Return what those processes work for that work for something; raises `OSError` if /proc cannot be listed."""
        now = self._now()
        known: dict[str, _Known] = {}
        for pid, path in self._pids():
            try:
                status = os.stat(path)  # noqa: PTH116  # a Path for each process would cost more than the rest
                known[pid] = self._look(pid, path, (status.st_ino, status.st_ctime_ns), now)
            except OSError:  # noqa: PERF203  # it has ended
                continue
        self._known = known
        return [each.work for each in known.values() if each.work != NOTHING]

    def _look(self, pid: str, path: str, identity: tuple[int, int], now: float) -> _Known:
        known = self._known.get(pid)
        if known is None or known.identity != identity:
            return self._read(path, identity, now, now)
        young = known.read_at - known.since < YOUNG_SECONDS
        # Not all at once: by pid they are spread over half a minute.
        pause = AGAIN_SECONDS + int(pid) % 30
        if known.work != NOTHING and not known.work.gpus:
            pause = WAITING_SECONDS
        stale = now - known.read_at > pause
        return self._read(path, identity, known.since, now) if young or stale else known

    def _read(self, path: str, identity: tuple[int, int], since: float, now: float) -> _Known:
        self.reads += 1
        return _Known(identity, work_of(path), since, now)

    def _pids(self) -> Iterator[tuple[str, str]]:
        with os.scandir(self._procfs) as entries:
            found = 0
            for entry in entries:
                if entry.name.isdigit():
                    found += 1
                    if found > MAX_PROCESSES:
                        return
                    yield entry.name, entry.path
