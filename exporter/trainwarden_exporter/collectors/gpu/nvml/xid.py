"""Errors that NVIDIA's driver reports by a code (Xid): lines of the kernel's log, and each error counted once."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.bus import bus_address
from trainwarden_exporter.collectors.kernel.log import KernelLogUnreadable, Kmsg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainwarden_exporter.core.metric import Families

log = logging.getLogger(__name__)

# Codes that ask for an action; each GPU has them from the start, so that `increase` sees the first error.
ACTION_CODES = (13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)
FALLEN_OFF_THE_BUS = 79
# NVML reports an error at once; the kernel's log is read at every interval.
SAME_SECONDS = 10.0
# The sources of a report; the second is a line of the kernel's log that names the error without its code.
NVML, KERNEL, KERNEL_IN_WORDS = "nvml", "kernel", "kernel, in words"

_ADDRESS = r"(?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?)"
# The address is followed by the instance, if the GPU is divided.
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}(?:[ ,][^)]*)?\): (?P<xid>\d{{1,4}})\b")
_FALLEN = re.compile(rf"NVRM: .*?GPU (?:at )?{_ADDRESS}\b.*has fallen off the bus", re.IGNORECASE)


@dataclass(frozen=True)
class Xid:
    """One error: the GPU's bus address, its code, and whether the line describes code 79 without naming it."""

    bus: str
    code: int
    in_words: bool = False


def parse_xid(text: str) -> Xid | None:
    """Return the error that a line of the kernel's log reports; None if it reports none."""
    if "NVRM" not in text:
        return None
    match = _XID.search(text)
    if match is not None:
        bus = bus_address(match["bus"])
        return None if bus is None else Xid(bus, int(match["xid"]))
    match = _FALLEN.search(text)
    bus = bus_address(match["bus"]) if match is not None else None
    return None if bus is None else Xid(bus, FALLEN_OFF_THE_BUS, in_words=True)


@dataclass(frozen=True)
class XidCount:
    """How often an error was reported, and when last (Unix seconds)."""

    number: int = 0
    last: float | None = None


@dataclass
class _Report:
    time: float
    sources: set[str]


class XidCounter:
    """Counts errors by GPU and code, each once, whichever source reports it first. For several threads."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], XidCount] = {}
        self._recent: dict[tuple[str, int], list[_Report]] = {}
        self._lock = threading.Lock()

    def report(self, bus: str, code: int, when: float, source: str, read_at: float | None = None) -> None:
        """Count an error unless another source reported the same.

        Args:
            bus: the GPU's address.
            code: the error.
            when: time of the error, Unix seconds.
            source: of the report; each source reports an error once.
            read_at: when the report was read, if reports are matched better by that time.
        """
        key = (bus, code)
        at = when if read_at is None else read_at
        with self._lock:
            recent = [report for report in self._recent.get(key, []) if abs(at - report.time) <= SAME_SECONDS]
            self._recent[key] = recent
            for report in recent:
                if source not in report.sources:
                    report.sources.add(source)
                    return
            recent.append(_Report(at, {source}))
            known = self._counts.get(key, XidCount())
            self._counts[key] = XidCount(known.number + 1, max(when, known.last or when))

    def counts(self) -> dict[tuple[str, int], XidCount]:
        """Return the counts by bus address and code."""
        with self._lock:
            return dict(self._counts)


class XidKernelLog:
    """Counts the errors in the kernel's log, some of which NVML does not report; for one thread.

    The first read counts what the log still holds as well: a counter that restarts begins where it was.
    """

    def __init__(self, path: Path, counter: XidCounter) -> None:
        self._log = Kmsg(path)
        self._counter = counter
        self._read_before = False
        self.readable: bool | None = None

    def add_to(self, families: Families, vendor: str) -> None:
        """Count the new errors, and add whether the log can be read."""
        self.read()
        families.add(metrics.GPU_KERNEL_LOG_READABLE, self.readable, vendor=vendor)

    def read(self) -> None:
        """Count the new errors."""
        try:
            lines = self._log.read()
        except KernelLogUnreadable as error:
            if self.readable is not False:
                log.warning("errors of GPUs are reported by NVML alone: %s", error)
            self.readable = False
            return
        self.readable = True
        for line in lines:
            xid = parse_xid(line.text)
            if xid is not None:
                source = KERNEL_IN_WORDS if xid.in_words else KERNEL
                read_at = time.time() if self._read_before else None
                self._counter.report(xid.bus, xid.code, line.time, source, read_at)
        self._read_before = True

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def add_xids(families: Families, counter: XidCounter, labels: Mapping[str, dict[str, str]]) -> None:
    """Add the counts of each GPU, given its labels by bus address; those of GPUs without any are added up."""
    found = counter.counts()
    counts: dict[tuple[str, str, int], XidCount] = {}
    for bus, gpu in labels.items():
        for code in ACTION_CODES:
            counts[gpu["gpu"], gpu["uuid"], code] = found.get((bus, code), XidCount())
    for (bus, code), count in found.items():
        gpu = labels.get(bus, {"gpu": "", "uuid": ""})
        key = (gpu["gpu"], gpu["uuid"], code)
        before = counts.get(key)
        counts[key] = count if before is None or bus in labels else _sum(before, count)
    for (index, uuid, code), count in sorted(counts.items()):
        families.add(metrics.GPU_XID_ERRORS_TOTAL, count.number, gpu=index, uuid=uuid, xid=str(code))
        families.add(metrics.GPU_XID_LAST_TIMESTAMP_SECONDS, count.last, gpu=index, uuid=uuid, xid=str(code))


def _sum(one: XidCount, other: XidCount) -> XidCount:
    return XidCount(one.number + other.number, max(one.last or 0.0, other.last or 0.0) or None)
