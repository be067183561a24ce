"""Exports what the kernel says of faults."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from trainwarden_exporter.collectors.kernel import metrics
from trainwarden_exporter.collectors.kernel.events import EVENTS, event_of, killed_process, victim_of
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainwarden_exporter.collectors.kernel.line import KernelLine
    from trainwarden_exporter.core.metric import Family

# What happened while the exporter was restarted is counted. What is older only has its time: an exporter that counted
# it at each start would let an old fault look like a new one as soon as the ring had lost others.
RECENT_SECONDS = 300.0
KEPT_KILLS = 8
# More than any ring holds; what is said faster than it is read is left for the next sample.
MAX_READS = 64
_OOM = frozenset({"oom_kill", "cgroup_oom_kill"})


class Log(Protocol):
    """Where lines come from."""

    @property
    def lost(self) -> int | None:
        """How many lines could not be read; None where that is not known."""

    def read(self) -> Sequence[KernelLine]:
        """Return what is new; raises if that cannot be known."""


class KernelCollector:
    """Counts events in the kernel's log.

    Args:
        log: where its lines come from.
        source: how that is called: kmsg or journal.
        now: the clock, Unix seconds.
    """

    name = "kernel"

    def __init__(self, log: Log, source: str, now: Callable[[], float] = time.time) -> None:
        self._log = log
        self._source = source
        self._since = now() - RECENT_SECONDS
        self._counts = dict.fromkeys(EVENTS, 0)
        self._last: dict[str, float] = {}
        self._jobs: dict[int, str] = {}
        self._kills: dict[tuple[str, str], float] = {}

    def collect(self) -> list[Family]:
        """Return the families as the kernel's log says now."""
        for _ in range(MAX_READS):
            lines = self._log.read()
            if not lines:
                break
            for line in lines:
                self._take_in(line)
        families = Families()
        for event, count in self._counts.items():
            families.add(metrics.KERNEL_EVENTS_TOTAL, count, event=event)
            families.add(metrics.KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, self._last.get(event), event=event)
        for (process, job), when in self._kills.items():
            families.add(metrics.KERNEL_OOM_KILL_TIMESTAMP_SECONDS, when, process=process, job_id=job)
        families.add(metrics.KERNEL_LOG_LINES_LOST_TOTAL, self._log.lost)
        families.add(metrics.KERNEL_LOG_INFO, 1, source=self._source)
        return families.collected()

    def _take_in(self, line: KernelLine) -> None:
        victim = victim_of(line.text)
        if victim is not None:
            self._jobs = {victim[0]: victim[1]}  # told right before it is killed
            return
        event = event_of(line.text)
        if event is None:
            return
        when = line.time
        self._last[event] = when
        if when >= self._since:
            self._counts[event] += 1
        if event in _OOM:
            self._take_in_kill(line.text, when)

    def _take_in_kill(self, text: str, when: float) -> None:
        killed = killed_process(text)
        if killed is None:
            return
        key = (label_text(killed[1], 32), self._jobs.get(killed[0], ""))
        self._kills.pop(key, None)  # the latest stand last
        self._kills[key] = when
        while len(self._kills) > KEPT_KILLS:
            del self._kills[next(iter(self._kills))]
