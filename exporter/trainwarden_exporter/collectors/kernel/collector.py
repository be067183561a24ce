"""Counts the faults that the kernel logs: of GPUs, links and disks, hung tasks, processes killed for memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from trainwarden_exporter.collectors.kernel import metrics
from trainwarden_exporter.collectors.kernel.events import EVENTS, event_of, killed_process, oom_victim
from trainwarden_exporter.collectors.kernel.log import Journal, Kmsg, journal_readable, kmsg_readable
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainwarden_exporter.collectors.kernel.log import KernelLine
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.spec import Context

# Count what was logged while the exporter was restarted. Of older faults export only the time: counted again at each
# start, an old fault would look like a new one as soon as the ring had dropped others.
RECENT_SECONDS = 300.0
KEPT_KILLS = 8
KMSG = "dev/kmsg"
# More than any ring holds; what is logged faster than it is read waits for the next sample.
MAX_READS = 64
_OOM = frozenset({"oom_kill", "cgroup_oom_kill"})


class LineSource(Protocol):
    """A source of kernel log lines."""

    @property
    def lost(self) -> int | None:
        """Lines that could not be read; None where that is not known."""

    def read(self) -> Sequence[KernelLine]:
        """Return the new lines; raise if that cannot be known."""


class KernelCollector:
    """Counts events in the kernel's log.

    Args:
        log: source of its lines.
        source: name of that source: kmsg or journal.
        now: the clock, Unix seconds.
    """

    name = "kernel"

    def __init__(self, log: LineSource, source: str, now: Callable[[], float] = time.time) -> None:
        self._log = log
        self._source = source
        self._since = now() - RECENT_SECONDS
        self._counts = dict.fromkeys(EVENTS, 0)
        self._last: dict[str, float] = {}
        self._jobs: dict[int, str] = {}
        self._kills: dict[tuple[str, str], float] = {}

    def collect(self) -> list[Family]:
        """Read the new lines and return the families."""
        for _ in range(MAX_READS):
            lines = self._log.read()
            if not lines:
                break
            for line in lines:
                self._count(line)
        families = Families()
        for event, count in self._counts.items():
            families.add(metrics.KERNEL_EVENTS_TOTAL, count, event=event)
            families.add(metrics.KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, self._last.get(event), event=event)
        for (process, job), when in self._kills.items():
            families.add(metrics.KERNEL_OOM_KILL_TIMESTAMP_SECONDS, when, process=process, job_id=job)
        families.add(metrics.KERNEL_LOG_LINES_LOST_TOTAL, self._log.lost)
        families.add(metrics.KERNEL_LOG_INFO, 1, source=self._source)
        return families.collected()

    def _count(self, line: KernelLine) -> None:
        victim = oom_victim(line.text)
        if victim is not None:
            self._jobs = {victim[0]: victim[1]}  # logged right before it is killed
            return
        event = event_of(line.text)
        if event is None:
            return
        when = line.time
        self._last[event] = when
        if when >= self._since:
            self._counts[event] += 1
        if event in _OOM:
            self._record_kill(line.text, when)

    def _record_kill(self, text: str, when: float) -> None:
        killed = killed_process(text)
        if killed is None:
            return
        key = (label_text(killed[1], 32), self._jobs.get(killed[0], ""))
        self._kills.pop(key, None)  # keep the order of the last kills
        self._kills[key] = when
        while len(self._kills) > KEPT_KILLS:
            del self._kills[next(iter(self._kills))]


def enabled(context: Context) -> bool:
    """Return whether the kernel's log can be read here."""
    return kmsg_readable(context.node.rootfs / KMSG) or journal_readable(context.node.rootfs)


def create(context: Context) -> Sampler:
    """Return the sampler: of /dev/kmsg where that can be read or nothing can, else of the journal."""
    root = context.node.rootfs
    if not kmsg_readable(root / KMSG) and journal_readable(root):
        collector = KernelCollector(Journal(root), "journal")
    else:
        collector = KernelCollector(Kmsg(root / KMSG), "kmsg")
    return Sampler(single_task(collector, context.interval, context.timeout))


SPEC = CollectorSpec(
    name="kernel",
    help="faults that the kernel reports",
    interval="5s",
    timeout="5s",
    needs="/dev/kmsg or the journal, readable",
    create=create,
    enabled=enabled,
)
