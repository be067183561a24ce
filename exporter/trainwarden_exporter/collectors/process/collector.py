"""Exports what the exporter itself costs, its child processes apart."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.process import metrics
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainwarden_exporter.core.metric import Family

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """One process: `cpu` seconds of user and system, `threads` how many, `start` seconds since boot, sizes in bytes."""

    cpu: float
    threads: int
    start: float
    virtual: int
    resident: int


class ProcessCollector:
    """Looks at this process and its children.

    Args:
        procfs: the process's own /proc, wherever that of the node is mounted.
    """

    name = "process"

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._booted = _boot_time(procfs)

    def collect(self) -> list[Family]:
        """Return the families as they are now."""
        own = self._procfs / "self"
        usage = parse_stat((own / "stat").read_bytes())
        families = Families()
        families.add(metrics.PROCESS_CPU_SECONDS_TOTAL, usage.cpu)
        families.add(metrics.PROCESS_VIRTUAL_MEMORY_BYTES, usage.virtual)
        families.add(metrics.PROCESS_RESIDENT_MEMORY_BYTES, usage.resident)
        families.add(metrics.PROCESS_START_TIME_SECONDS, self._booted + usage.start)
        families.add(metrics.PROCESS_THREADS, usage.threads)
        families.add(metrics.PROCESS_OPEN_FDS, len(os.listdir(own / "fd")) - 1)  # noqa: PTH208  # less the one that lists
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        families.add(metrics.PROCESS_MAX_FDS, None if limit == resource.RLIM_INFINITY else limit)
        self._add_children(families, own)
        return families.collected()

    def _add_children(self, families: Families, own: Path) -> None:
        children = list(self._children(own))
        families.add(metrics.TRAINWARDEN_PROCESS_CHILDREN, len(children))
        families.add(
            metrics.TRAINWARDEN_PROCESS_CHILDREN_RESIDENT_MEMORY_BYTES, sum(each.resident for each in children)
        )
        # Those that ended are in the kernel's account of this process: the sum never goes down.
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = ended.ru_utime + ended.ru_stime + sum(each.cpu for each in children)
        families.add(metrics.TRAINWARDEN_PROCESS_CHILDREN_CPU_SECONDS_TOTAL, spent)

    def _children(self, own: Path) -> Iterator[Usage]:
        """A child is listed with the thread that started it; thread and child may be gone meanwhile."""
        for thread in os.listdir(own / "task"):  # noqa: PTH208  # a name is all that is needed
            with contextlib.suppress(OSError):
                for child in (own / "task" / thread / "children").read_text().split():
                    with contextlib.suppress(OSError):
                        yield parse_stat((self._procfs / child / "stat").read_bytes())


def parse_stat(stat: bytes) -> Usage:
    """Return what /proc/PID/stat says; the name in it, in brackets, may hold anything."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    # Numbered from field 3 of proc(5).
    user, system, threads, start = (int(fields[place]) for place in (11, 12, 17, 19))
    virtual, resident = int(fields[20]), int(fields[21]) * _PAGE
    return Usage((user + system) / _TICK, threads, start / _TICK, virtual, resident)


def _boot_time(procfs: Path) -> float:
    for line in (procfs / "stat").read_bytes().splitlines():
        if line.startswith(b"btime "):
            return float(line[6:])
    raise ValueError(f"{procfs / 'stat'}: no line btime")
