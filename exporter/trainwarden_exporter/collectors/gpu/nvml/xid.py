"""Errors that NVIDIA's driver reports by a code (Xid): lines of the kernel's log, and each error counted once."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.bus import bus_address
from trainwarden_exporter.collectors.gpu.nvml.xid_codes import ACTION_CODES, CODES
from trainwarden_exporter.collectors.kernel.log import MAX_LINES, KernelLogUnreadable, Kmsg, unix_time
from trainwarden_exporter.core.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainwarden_exporter.collectors.kernel.log import KernelLine
    from trainwarden_exporter.core.metric import Families

log = logging.getLogger(__name__)

FALLEN_OFF_THE_BUS = 79
# A driver that is slow delivers an event late: a child that does not answer for a minute is replaced.
LATE_SECONDS = 120.0
# Between the line with the code and the one in words.
SAME_SECONDS = 10.0
# A code that is not among those above is exported as 0 for this time, which spans the pause between two scrapes.
NEW_CODE_SECONDS = 90.0
MAX_UNPAIRED = 100
STORE_SECONDS = 60.0
# The sources of a report; the second is a line of the kernel's log that names the error without its code.
NVML, KERNEL, KERNEL_IN_WORDS = "nvml", "kernel", "kernel, in words"

_ADDRESS = r"(?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?)"
# The address is followed by the instance, if the GPU is divided.
_XID = re.compile(rf"^NVRM: Xid \({_ADDRESS}(?:[ ,][^)]*)?\): (?P<xid>\d{{1,4}})\b")
_FALLEN = re.compile(
    rf"^NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}\b.*has fallen off the bus", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class Xid:
    """One error: the GPU's bus address, its code, and whether the line describes code 79 without naming it."""

    bus: str
    code: int
    in_words: bool = False


def parse_xid(text: str) -> Xid | None:
    """Return the error that a line of the kernel's log reports; None if it reports none."""
    if not text.startswith("NVRM"):
        return None
    match = _XID.match(text)
    if match is not None:
        bus = bus_address(match["bus"])
        return None if bus is None else Xid(bus, int(match["xid"]))
    match = _FALLEN.match(text)
    bus = bus_address(match["bus"]) if match is not None else None
    return None if bus is None else Xid(bus, FALLEN_OFF_THE_BUS, in_words=True)


@dataclass(frozen=True)
class XidCount:
    """How often an error was reported, and when last (Unix seconds)."""

    number: int = 0
    last: float | None = None


@dataclass
class _Report:
    """An error that some sources reported: it happened between two times (CLOCK_MONOTONIC, seconds)."""

    earliest: float
    latest: float
    sources: set[str]

    def same(self, earliest: float, latest: float, source: str) -> bool:
        """Return whether another source reports the same error."""
        if source in self.sources:
            return False
        if {source, *self.sources} == {KERNEL, KERNEL_IN_WORDS}:
            return abs(latest - self.latest) <= SAME_SECONDS
        return earliest <= self.latest + 1 and self.earliest <= latest + 1


class XidCounter:
    """Counts errors by GPU and code, each once, whichever source reports it first. For several threads.

    Args:
        monotonic: the clock.

    Attributes:
        since: since when it counts, Unix seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.since = time.time()
        self.changed = False
        self._monotonic = monotonic
        self._counts: dict[tuple[str, int], XidCount] = {}
        self._recent: dict[tuple[str, int], list[_Report]] = {}
        self._new: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()

    def report_event(self, bus: str, code: int) -> None:
        """Count an event that NVML delivered just now, unless the kernel's log had it."""
        now = self._monotonic()
        self._report(bus, code, now - LATE_SECONDS, now, NVML)

    def report_line(self, xid: Xid, line: KernelLine) -> None:
        """Count an error in the kernel's log, unless NVML or another line reported it."""
        source = KERNEL_IN_WORDS if xid.in_words else KERNEL
        self._report(xid.bus, xid.code, line.earliest, line.logged, source)

    def note(self, xid: Xid, line: KernelLine) -> None:
        """Take over the time alone of an error from before the counting began."""
        with self._lock:
            number = self._counts.get((xid.bus, xid.code), XidCount()).number
            self._counts[xid.bus, xid.code] = XidCount(number, line.time)

    def _report(self, bus: str, code: int, earliest: float, latest: float, source: str) -> None:
        key = (bus, code)
        with self._lock:
            self.changed = True
            recent = self._recent.setdefault(key, [])
            for report in recent:
                if report.same(earliest, latest, source):
                    report.sources.add(source)
                    # The line is closer to the error than the event, which may be late.
                    if source != NVML:
                        report.earliest, report.latest = earliest, latest
                    if report.sources >= {NVML, KERNEL} and code != FALLEN_OFF_THE_BUS:
                        recent.remove(report)
                    return
            recent.append(_Report(earliest, latest, {source}))
            del recent[:-MAX_UNPAIRED]
            if key not in self._counts:
                self._new[key] = self._monotonic()
            number = self._counts.get(key, XidCount()).number + 1
            self._counts[key] = XidCount(number, unix_time(latest))

    def counts(self) -> dict[tuple[str, int], XidCount]:
        """Return the counts by bus address and code; a code that is new is 0 at first, for `increase` to see it."""
        with self._lock:
            now = self._monotonic()
            self._new = {key: born for key, born in self._new.items() if now - born < NEW_CODE_SECONDS}
            return {
                key: XidCount(0, count.last) if key in self._new and key[1] not in ACTION_CODES else count
                for key, count in self._counts.items()
            }

    def state(self) -> dict[str, Any]:
        """Return what `restore` takes."""
        with self._lock:
            self.changed = False
            return {
                "since": self.since,
                "counts": [[bus, code, count.number, count.last] for (bus, code), count in self._counts.items()],
                "recent": [
                    [bus, code, report.earliest, report.latest, sorted(report.sources)]
                    for (bus, code), reports in self._recent.items()
                    for report in reports
                ],
            }

    def restore(self, state: Mapping[str, Any], *, same_boot: bool) -> None:
        """Go on with the counts of a counter before; raises `KeyError`, `TypeError` or `ValueError`."""
        counts = {
            (str(bus), int(code)): XidCount(int(number), None if last is None else float(last))
            for bus, code, number, last in state["counts"]
        }
        recent: dict[tuple[str, int], list[_Report]] = {}
        for bus, code, earliest, latest, sources in state["recent"] if same_boot else ():
            recent.setdefault((str(bus), int(code)), []).append(_Report(float(earliest), float(latest), set(sources)))
        self.since, self._counts, self._recent = float(state["since"]), counts, recent


class XidKernelLog:
    """Counts the errors in the kernel's log, some of which NVML does not report; for one thread.

    It goes on behind the last line that the state has. Without a state the counts begin at 0, with what is logged
    from now on.

    Args:
        path: of /dev/kmsg.
        counter: of the errors.
        state: where the counts are kept.
        boot_id: of the kernel; empty if unknown, and nothing is kept then.
    """

    def __init__(self, path: Path, counter: XidCounter, state: StateFile | None = None, boot_id: str = "") -> None:
        self._log = Kmsg(path)
        self._counter = counter
        self._state = state if state is not None and boot_id else StateFile(None)
        self._boot_id = boot_id
        self._counting = False
        self._stored_at: float | None = None
        self.readable: bool | None = None
        self._restore()

    def add_to(self, families: Families, vendor: str) -> None:
        """Count the new errors, and add whether the log can be read and since when errors are counted."""
        self.read()
        self._store()
        families.add(metrics.GPU_KERNEL_LOG_READABLE, self.readable, vendor=vendor)
        families.add(metrics.GPU_XID_ERRORS_SINCE_TIMESTAMP_SECONDS, self._counter.since, vendor=vendor)

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
            if xid is not None and self._counting:
                self._counter.report_line(xid, line)
            elif xid is not None:
                self._counter.note(xid, line)
        self._counting = self._counting or len(lines) < MAX_LINES

    def close(self) -> None:
        """Close the log, and store the counts."""
        self._log.close()
        self._stored_at = None
        self._store()

    def _restore(self) -> None:
        """Take over the counts; lines of another boot are all new."""
        stored = self._state.read()
        if stored is None:
            return
        try:
            same_boot = stored["boot_id"] == self._boot_id
            self._counter.restore(stored, same_boot=same_boot)
            self._counting = not same_boot or self._log.restore(stored["position"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("%s is not used: %r", self._state.path, error)

    def _store(self) -> None:
        now = time.monotonic()
        if self._counter.changed or self._stored_at is None or now - self._stored_at >= STORE_SECONDS:
            self._stored_at = now
            position = self._log.position
            self._state.write({"boot_id": self._boot_id, "position": position, **self._counter.state()})


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
    seen = {code for (_, _, code), count in counts.items() if count.last is not None}
    for code in sorted(seen & CODES.keys()):
        families.add(metrics.GPU_XID_INFO, 1, xid=str(code), meaning=CODES[code].meaning, action=CODES[code].action)


def _sum(one: XidCount, other: XidCount) -> XidCount:
    return XidCount(one.number + other.number, max(one.last or 0.0, other.last or 0.0) or None)
