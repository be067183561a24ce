"""What a process and all that it started take: processor time and memory."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.tables import verdict

_TICK = os.sysconf("SC_CLK_TCK")
_READINGS = 100
_WARM_UP = 0.3
_LIMITS = {"memory, KiB": 2048, "open files": 8, "threads": 8}


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


class Growth:
    """How much more a process tree holds after many scrapes than after the first.

    Memory goes up and down by some MiB, so what is compared is the most of a tenth of the scrapes: of the last one, and
    of that before `_WARM_UP` of them, when all that comes and goes has come and gone several times.
    """

    def __init__(self, pid: int, scrapes: int) -> None:
        self._pid = pid
        self._scrapes = scrapes
        self._readings: list[dict[str, int]] = []

    def scraped(self, number: int) -> None:
        """Look at it after each hundredth of the scrapes; `number` is that of the last one."""
        if number * _READINGS // self._scrapes == len(self._readings):
            self._readings.append(held(self._pid))

    def rows(self) -> list[list[str]]:
        """Return a row of the table for each of what it holds."""
        self._readings.append(held(self._pid))
        before, after = self._most(_WARM_UP), self._most(1.0)
        return [
            [
                f"{name}, after {self._scrapes:,}",
                f"{after[name]:,} ({after[name] - before[name]:+,})",
                verdict(after[name] - before[name] <= limit),
            ]
            for name, limit in _LIMITS.items()
        ]

    def _most(self, until: float) -> dict[str, int]:
        end = round(until * len(self._readings))
        tenth = self._readings[max(0, end - _READINGS // 10) : end]
        return {name: max(each[name] for each in tenth) for name in _LIMITS}


GROWTH = (
    f"Of what it holds: the most in the last tenth, and how much more than in the tenth until {_WARM_UP:.0%} of them."
)
GROWTH_TARGETS = (
    f"at most {_LIMITS['memory, KiB']} KiB, {_LIMITS['open files']} files and {_LIMITS['threads']} threads more"
)


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
