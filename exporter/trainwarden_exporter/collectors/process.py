"""What the exporter itself costs, its child processes apart."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.core.metric import Families, counter, gauge
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.spec import Context

# Other programs export metrics of these names too.
_OURS = " and on (job, instance) trainwarden_process_children"

PROCESS_CPU_SECONDS_TOTAL = counter(
    "process_cpu_seconds_total",
    "",
    "seconds",
    "CPU time of the exporter, without its child processes.",
    "/proc/self/stat",
    "rate(process_cpu_seconds_total[5m]) + rate(trainwarden_process_children_cpu_seconds_total[5m])",
)
PROCESS_VIRTUAL_MEMORY_BYTES = gauge(
    "process_virtual_memory_bytes",
    "",
    "bytes",
    "Virtual memory of the exporter.",
    "/proc/self/stat",
    "process_virtual_memory_bytes" + _OURS,
)
PROCESS_RESIDENT_MEMORY_BYTES = gauge(
    "process_resident_memory_bytes",
    "",
    "bytes",
    "Memory of the exporter, without its child processes.",
    "/proc/self/stat",
    "process_resident_memory_bytes > 256 * 1024 * 1024" + _OURS,
)
PROCESS_START_TIME_SECONDS = gauge(
    "process_start_time_seconds",
    "",
    "Unix seconds",
    "When the exporter started.",
    "/proc/self/stat, /proc/stat",
    "changes(process_start_time_seconds[1h]) > 2" + _OURS,
)
PROCESS_THREADS = gauge(
    "process_threads",
    "",
    "threads",
    "Threads of the exporter: one for each device, one for each collector, one for each scrape.",
    "/proc/self/stat",
    "process_threads > 500" + _OURS,
)
PROCESS_OPEN_FDS = gauge(
    "process_open_fds",
    "",
    "files",
    "Files and connections that the exporter holds open.",
    "/proc/self/fd",
    "process_open_fds / process_max_fds > 0.8" + _OURS,
)
PROCESS_MAX_FDS = gauge(
    "process_max_fds",
    "",
    "files",
    "Limit of open files and connections of the exporter.",
    "getrlimit(2)",
    "process_max_fds - process_open_fds < 100" + _OURS,
)
TRAINWARDEN_PROCESS_CHILDREN = gauge(
    "trainwarden_process_children",
    "",
    "processes",
    "Child processes of the exporter: one for each driver that it reads, and one for S3.",
    "/proc/self/task/*/children",
    "trainwarden_process_children > 4",
)
TRAINWARDEN_PROCESS_CHILDREN_RESIDENT_MEMORY_BYTES = gauge(
    "trainwarden_process_children_resident_memory_bytes",
    "",
    "bytes",
    "Memory of the child processes together; memory shared with the exporter is counted in each.",
    "/proc/PID/stat",
    "process_resident_memory_bytes + trainwarden_process_children_resident_memory_bytes",
)
TRAINWARDEN_PROCESS_CHILDREN_CPU_SECONDS_TOTAL = counter(
    "trainwarden_process_children_cpu_seconds_total",
    "",
    "seconds",
    "CPU time of the child processes, including those that ended.",
    "/proc/PID/stat, getrusage(2)",
    "rate(trainwarden_process_children_cpu_seconds_total[5m])",
)

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """One process: `cpu` seconds of user and system, `threads` a count, `start` seconds since boot, sizes in bytes."""

    cpu: float
    threads: int
    start: float
    virtual: int
    resident: int


class ProcessCollector:
    """Exports what this process and its children use.

    Args:
        procfs: /proc as this process sees it, wherever that of the node is mounted.
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
        families.add(PROCESS_CPU_SECONDS_TOTAL, usage.cpu)
        families.add(PROCESS_VIRTUAL_MEMORY_BYTES, usage.virtual)
        families.add(PROCESS_RESIDENT_MEMORY_BYTES, usage.resident)
        families.add(PROCESS_START_TIME_SECONDS, self._booted + usage.start)
        families.add(PROCESS_THREADS, usage.threads)
        families.add(PROCESS_OPEN_FDS, len(os.listdir(own / "fd")) - 1)  # noqa: PTH208  # less the descriptor of this listing
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        families.add(PROCESS_MAX_FDS, None if limit == resource.RLIM_INFINITY else limit)
        self._add_children(families, own)
        return families.collected()

    def _add_children(self, families: Families, own: Path) -> None:
        children = list(self._children(own))
        families.add(TRAINWARDEN_PROCESS_CHILDREN, len(children))
        families.add(TRAINWARDEN_PROCESS_CHILDREN_RESIDENT_MEMORY_BYTES, sum(each.resident for each in children))
        # The kernel adds a child that ended to this process's account: the sum never falls.
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = ended.ru_utime + ended.ru_stime + sum(each.cpu for each in children)
        families.add(TRAINWARDEN_PROCESS_CHILDREN_CPU_SECONDS_TOTAL, spent)

    def _children(self, own: Path) -> Iterator[Usage]:
        """Yield each child; the kernel lists it under the thread that started it, and either may end meanwhile."""
        for thread in os.listdir(own / "task"):  # noqa: PTH208  # a name is all that is needed
            with contextlib.suppress(OSError):
                for child in (own / "task" / thread / "children").read_text().split():
                    with contextlib.suppress(OSError):
                        yield parse_stat((self._procfs / child / "stat").read_bytes())


def parse_stat(stat: bytes) -> Usage:
    """Parse /proc/PID/stat; the process name in it, in brackets, may hold any bytes."""
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


def create(context: Context) -> Sampler:
    """Return the sampler of the exporter's own process."""
    return Sampler(single_task(ProcessCollector(), context.interval, context.timeout))


SPEC = CollectorSpec(
    name="process", help="the cost of the exporter itself", interval="15s", timeout="5s", create=create
)
