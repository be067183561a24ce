"""Errors that NVIDIA's driver reports by a code (Xid): lines of the kernel's log, and each error counted once."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu.bus import bus_address
from trainwarden_exporter.collectors.gpu.nvml import xid_metrics
from trainwarden_exporter.collectors.gpu.nvml.xid_codes import ACTION_CODES, ACTIONS, CODES, action_of
from trainwarden_exporter.collectors.kernel.log import MAX_LINES, KernelLogUnreadable, Kmsg, unix_time
from trainwarden_exporter.collectors.kernel.log_state import LogState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainwarden_exporter.collectors.kernel.log import KernelLine
    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.core.state_file import StateFile

log = logging.getLogger(__name__)

FALLEN_OFF_THE_BUS = 79
# A driver that is slow delivers an event late: a child that does not answer for a minute is replaced.
LATE_SECONDS = 120.0
# Between the line with the code and the one in words.
SAME_SECONDS = 10.0
# A code that is not among those above is exported as 0 for this time, which spans the pause between two scrapes.
NEW_CODE_SECONDS = 90.0
MAX_UNPAIRED = 100
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
        self._uuids: dict[str, str] = {}
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

    def identify(self, uuids: Mapping[str, str]) -> None:
        """Have the counts follow the GPUs, given the uuid at each address, empty where not known.

        Those of a GPU that was exchanged or moved are kept by its uuid until it is there again.
        """
        with self._lock:
            places = {uuid: bus for bus, uuid in uuids.items() if uuid}
            for bus, uuid in list(self._uuids.items()):
                if uuids.get(bus) != uuid and (uuids.get(bus) or uuid in places):
                    self._move(bus, uuid)
                    del self._uuids[bus]
            for uuid, bus in places.items():
                if bus not in self._uuids:
                    self._move(uuid, bus)
                    self._uuids[bus] = uuid
                    self.changed = True

    def _move(self, before: str, after: str) -> None:
        for code in [code for place, code in self._counts if place == before]:
            count = self._counts.pop((before, code))
            self._counts[after, code] = _sum(self._counts.get((after, code), XidCount()), count)
            if reports := self._recent.pop((before, code), None):
                self._recent.setdefault((after, code), []).extend(reports)
            if (born := self._new.pop((before, code), None)) is not None:
                self._new[after, code] = born

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
                "uuids": self._uuids,
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
        self._uuids = {str(bus): str(uuid) for bus, uuid in dict(state.get("uuids", {})).items()}
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
        self._state = LogState(state, boot_id, self._log)
        self._counting = self._state.restore(lambda stored, same_boot: counter.restore(stored, same_boot=same_boot))
        self.readable: bool | None = None

    def add_to(self, families: Families, vendor: str) -> None:
        """Count the new errors, and add whether the log can be read and since when errors are counted."""
        self.read()
        self._state.store(self._counter.state, at_once=self._counter.changed)
        families.add(xid_metrics.GPU_KERNEL_LOG_READABLE, self.readable, vendor=vendor)
        families.add(xid_metrics.GPU_XID_ERRORS_SINCE_TIMESTAMP_SECONDS, self._counter.since, vendor=vendor)

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
        self._state.store(self._counter.state, at_once=True)


def add_xids(families: Families, counter: XidCounter, labels: Mapping[str, dict[str, str]]) -> None:
    """Add the counts of each GPU, given its labels by bus address; those of addresses without a GPU are added up."""
    counter.identify({bus: gpu["uuid"] for bus, gpu in labels.items()})
    found = counter.counts()
    counts: dict[tuple[str, str, int], XidCount] = {}
    for bus, gpu in labels.items():
        for code in ACTION_CODES:
            counts[gpu["gpu"], gpu["uuid"], code] = found.get((bus, code), XidCount())
    for (bus, code), count in found.items():
        if bus not in labels and bus_address(bus) is None and bus:
            continue  # of a GPU that was exchanged, by its uuid
        gpu = labels.get(bus, {"gpu": "", "uuid": ""})
        key = (gpu["gpu"], gpu["uuid"], code)
        before = counts.get(key)
        counts[key] = count if before is None or bus in labels else _sum(before, count)
    for (index, uuid, code), count in sorted(counts.items()):
        families.add(xid_metrics.GPU_XID_ERRORS_TOTAL, count.number, gpu=index, uuid=uuid, xid=str(code))
        families.add(xid_metrics.GPU_XID_LAST_TIMESTAMP_SECONDS, count.last, gpu=index, uuid=uuid, xid=str(code))
    by_action = dict.fromkeys(ACTIONS, 0)
    for (_, code), count in found.items():
        by_action[action_of(code)] += count.number
    for action, number in by_action.items():
        families.add(xid_metrics.GPU_NODE_XID_ERRORS_TOTAL, number, action=action)
    seen = {code for (_, _, code), count in counts.items() if count.last is not None}
    for code in sorted(seen & CODES.keys()):
        families.add(xid_metrics.GPU_XID_INFO, 1, xid=str(code), meaning=CODES[code].meaning, action=CODES[code].action)


def _sum(one: XidCount, other: XidCount) -> XidCount:
    return XidCount(one.number + other.number, max(one.last or 0.0, other.last or 0.0) or None)
