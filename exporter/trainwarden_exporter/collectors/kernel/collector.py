"""Counts the faults that the kernel logs: of GPUs, links and disks, hung tasks, processes killed for memory."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from trainwarden.redaction import label_text
from trainwarden_exporter.collectors.kernel import metrics
from trainwarden_exporter.collectors.kernel.events import EVENTS, event_of, killed_process, oom_victim
from trainwarden_exporter.collectors.kernel.log import Journal, Kmsg, journal_readable, kmsg_readable
from trainwarden_exporter.collectors.kernel.log_state import LogState, Positioned
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.core.state_file import node_state
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainwarden_exporter.collectors.kernel.log import KernelLine
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.spec import Context
    from trainwarden_exporter.core.state_file import StateFile

log = logging.getLogger(__name__)

KEPT_KILLS = 8
KMSG = "dev/kmsg"
# More than any ring holds; what is logged faster than it is read waits for the next sample.
MAX_READS = 64
_OOM = frozenset({"oom_kill", "cgroup_oom_kill"})


class LineSource(Positioned, Protocol):
    """A source of kernel log lines."""

    @property
    def lost(self) -> int | None:
        """Lines that could not be read; None where that is not known."""

    def read(self) -> Sequence[KernelLine]:
        """Return the new lines; raise if that cannot be known."""


class KernelCollector:
    """Counts events in the kernel's log, and goes on behind the last line that an exporter of this node counted.

    Without a state the counts begin at 0 with the first line that is logged after the start; of what the log held
    before, the times are exported.

    Args:
        log: source of its lines.
        source: name of that source: kmsg or journal.
        state: where the counts are kept.
        boot_id: of the kernel; empty if unknown, and nothing is kept then.
        now: the clock, Unix seconds.
    """

    name = "kernel"

    def __init__(
        self,
        log: LineSource,
        source: str,
        state: StateFile | None = None,
        boot_id: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._source = source
        self._state = LogState(state, boot_id, log)
        self._since = now()
        self._counts = dict.fromkeys(EVENTS, 0)
        self._last: dict[str, float] = {}
        self._jobs: dict[int, str] = {}
        self._kills: dict[tuple[str, str], float] = {}
        self._lost_before = 0
        self._counting = self._state.restore(self._take)

    def collect(self) -> list[Family]:
        """Read the new lines and return the families."""
        found = False
        for _ in range(MAX_READS):
            lines = self._log.read()
            if not lines:
                break
            for line in lines:
                found |= self._count(line)
        self._counting = True
        self._state.store(self._counted, at_once=found)
        families = Families()
        for event, count in self._counts.items():
            families.add(metrics.KERNEL_EVENTS_TOTAL, count, event=event)
            families.add(metrics.KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, self._last.get(event), event=event)
        families.add(metrics.KERNEL_EVENTS_SINCE_TIMESTAMP_SECONDS, self._since)
        for (process, job), when in self._kills.items():
            families.add(metrics.KERNEL_OOM_KILL_TIMESTAMP_SECONDS, when, process=process, job_id=job)
        families.add(metrics.KERNEL_LOG_LINES_LOST_TOTAL, self._lost)
        families.add(metrics.KERNEL_LOG_INFO, 1, source=self._source)
        return families.collected()

    def close(self) -> None:
        """Store up to where the log was read."""
        if self._counting:
            self._state.store(self._counted, at_once=True)

    @property
    def _lost(self) -> int | None:
        return None if self._log.lost is None else self._lost_before + self._log.lost

    def _count(self, line: KernelLine) -> bool:
        """Count the event of a line; return whether it is of one."""
        victim = oom_victim(line.text)
        if victim is not None:
            self._jobs = {victim[0]: victim[1]}  # logged right before it is killed
            return False
        event = event_of(line.text)
        if event is None:
            return False
        when = line.time
        self._last[event] = when
        if self._counting:
            self._counts[event] += 1
        if event in _OOM:
            self._record_kill(line.text, when)
        return True

    def _record_kill(self, text: str, when: float) -> None:
        killed = killed_process(text)
        if killed is None:
            return
        key = (label_text(killed[1], 32), self._jobs.get(killed[0], ""))
        self._kills.pop(key, None)  # keep the order of the last kills
        self._kills[key] = when
        while len(self._kills) > KEPT_KILLS:
            # The oldest of the job that has most: a job whose processes are killed again and again hides no other's.
            of_job = Counter(job for _, job in self._kills)
            most = max(of_job.values())
            del self._kills[next(kill for kill in self._kills if of_job[kill[1]] == most)]

    def _take(self, stored: Mapping[str, Any], _: bool) -> None:
        since = float(stored["since"])
        counts = {event: int(stored["counts"].get(event, 0)) for event in EVENTS}
        last = {event: float(stored["last"][event]) for event in EVENTS if event in stored["last"]}
        kills = {(str(process), str(job)): float(when) for process, job, when in stored["kills"][-KEPT_KILLS:]}
        self._lost_before = int(stored["lost"] or 0)
        self._since, self._counts, self._last, self._kills = since, counts, last, kills

    def _counted(self) -> dict[str, Any]:
        return {
            "since": self._since,
            "counts": self._counts,
            "last": self._last,
            "kills": [[process, job, when] for (process, job), when in self._kills.items()],
            "lost": self._lost,
        }


def enabled(context: Context) -> bool:
    """Return whether the kernel's log can be read here."""
    return kmsg_readable(context.node.rootfs / KMSG) or journal_readable(context.node.rootfs)


def create(context: Context) -> Sampler:
    """Return the sampler: of /dev/kmsg where that can be read or nothing can, else of the journal."""
    root = context.node.rootfs
    state, boot_id = node_state(context.flags, context.node, "kernel"), context.node.boot_id
    if not kmsg_readable(root / KMSG) and journal_readable(root):
        collector = KernelCollector(Journal(root), "journal", state, boot_id)
    else:
        collector = KernelCollector(Kmsg(root / KMSG), "kmsg", state, boot_id)
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
