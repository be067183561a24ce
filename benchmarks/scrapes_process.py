"""What a process and all that it started take: processor time and memory."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                yield from tree(int(child))


def cpu_seconds(pid: int) -> float:
    """Processor time of the whole tree so far, user and system, in ticks of usually 10 ms."""
    return sum(_ticks(each) for each in tree(pid)) / _TICK


def pss_mib(pid: int) -> float:
    """Memory of the whole tree, what is shared counted in shares."""
    return sum(_pss_kib(each) for each in tree(pid)) / 1024


def held(pid: int) -> dict[str, int]:
    """What the whole tree holds: memory, open files and threads."""
    pids = list(tree(pid))
    return {
        "memory, KiB": round(1024 * pss_mib(pid)),
        "open files": sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in pids),
        "threads": sum(len(list(Path(f"/proc/{each}/task").iterdir())) for each in pids),
    }


def _ticks(pid: int) -> int:
    # Behind the name, which may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # a command that has just ended
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
