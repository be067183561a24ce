"""The collector of a SLURM cluster. Jobs and nodes are two parts: neither pays for what keeps the other unread."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainwarden_exporter.collectors.slurm import metrics
from trainwarden_exporter.collectors.slurm.answer import records
from trainwarden_exporter.collectors.slurm.command import run
from trainwarden_exporter.collectors.slurm.controller import Page, add_page
from trainwarden_exporter.collectors.slurm.errors import REASONS, SlurmError
from trainwarden_exporter.collectors.slurm.jobs import ENDED, Job, read_job
from trainwarden_exporter.collectors.slurm.nodes import Node, read_node
from trainwarden_exporter.collectors.slurm.series import add_job, add_job_totals, add_node, add_node_totals
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

T = TypeVar("T")

JOBS, NODES, CONTROLLER = "jobs", "nodes", "controller"
OUTCOMES = ("exported", "other", "dropped", "unreadable")
# What is left of a deadline when a command is ended, so that its end is told before the sample counts as hung.
SPARE = 0.9
# States of which nobody need be told first.
_WELL = frozenset({"allocated", "mixed", "completing", "idle", "power_saving"})


@dataclass(frozen=True)
class Settings:
    """What is read and how much of it is told; times in seconds.

    Attributes:
        squeue, scontrol, sinfo: paths of the commands.
        name_filter: matches names of jobs that work for the run of its group `run_id`; their comment wins.
        page: slurmctld's own metrics; None where they are not asked for.
        expect: takes the runs that should have a record, and since when, Unix seconds; None: not known here.
    """

    squeue: str
    scontrol: str
    sinfo: str
    interval: float
    timeout: float
    max_jobs: int
    max_nodes: int
    name_filter: re.Pattern[str] | None = None
    page: Page | None = None
    expect: Callable[[Mapping[str, float]], None] | None = None


class SlurmCollector:
    """What slurmctld says of the jobs of runs, and of the nodes. One command each a sample, `scontrol` or `sinfo`."""

    name = "slurm"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._records: dict[str, Counter[str]] = {}
        self._logged: set[str] = set()
        self._nodes_command: Sequence[str] | None = None

    def collect(self) -> Iterable[Family]:
        """Return how reading SLURM has gone."""
        families = Families()
        with self._lock:
            for part in self.parts():
                for reason in REASONS:
                    families.add(
                        metrics.TRAINWARDEN_SLURM_ERRORS_TOTAL,
                        self._errors[part.device, reason],
                        source=part.device,
                        reason=reason,
                    )
            for kind, outcomes in self._records.items():
                for outcome in OUTCOMES:
                    families.add(metrics.TRAINWARDEN_SLURM_RECORDS, outcomes[outcome], kind=kind, outcome=outcome)
        return families.collected()

    def parts(self) -> list[SampleTask]:
        """Return what is read, each by itself."""
        reads: dict[str, Callable[[], Iterable[Family]]] = {JOBS: self._jobs, NODES: self._nodes}
        page = self._settings.page
        if page:
            reads[CONTROLLER] = functools.partial(self._controller, page)
        interval, timeout = self._settings.interval, self._settings.timeout
        return [
            SampleTask(self.name, self._counted(device, read), interval, timeout, device)
            for device, read in reads.items()
        ]

    def close(self) -> None:
        """Nothing is held between two samples."""

    def _counted(self, source: str, read: Callable[[], Iterable[Family]]) -> Callable[[], Iterable[Family]]:
        def counted() -> Iterable[Family]:
            try:
                return read()
            except SlurmError as error:
                with self._lock:
                    self._errors[source, error.reason] += 1
                    self._records.pop(source, None)
                if source == JOBS and self._settings.expect:
                    self._settings.expect({})
                raise

        return counted

    def _jobs(self) -> Iterable[Family]:
        answer = run([self._settings.squeue, "--json", "--states=all"], self._settings.timeout * SPARE)
        outcomes: Counter[str] = Counter()
        found = self._read_all(JOBS, records(answer, JOBS), self._read_job, outcomes)
        jobs = {job.job_id: job for job in found}  # of several records the last: an id stands once on the page
        ours = [job for job in jobs.values() if job.run_id is not None]
        ours.sort(key=lambda job: (job.state in ENDED, -(job.ended or 0.0), -int(job.job_id)))
        exported = ours[: self._settings.max_jobs]
        outcomes.update(exported=len(exported), dropped=len(ours) - len(exported), other=len(jobs) - len(ours))
        families = Families()
        for job in exported:
            add_job(families, job)
        add_job_totals(families, jobs.values())
        self._note(JOBS, outcomes)
        if self._settings.expect:
            self._settings.expect(expected(exported, time.time()))
        return families.collected()

    def _nodes(self) -> Iterable[Family]:
        outcomes: Counter[str] = Counter()
        found = self._read_all(NODES, self._node_records(), read_node, outcomes)
        nodes = sorted({node.name: node for node in found}.values(), key=_by_need)
        exported = nodes[: self._settings.max_nodes]
        outcomes.update(exported=len(exported), dropped=len(nodes) - len(exported))
        families = Families()
        for node in exported:
            add_node(families, node)
        add_node_totals(families, nodes)
        self._note(NODES, outcomes)
        return families.collected()

    def _node_records(self) -> list[Any]:
        """Ask `scontrol`, which lists single nodes as JSON since 23.02; before, `sinfo` does."""
        ends = time.monotonic() + self._settings.timeout * SPARE
        newer = (self._settings.scontrol, "show", "nodes", "--json")
        older = (self._settings.sinfo, "--json")
        if self._nodes_command is None:
            try:
                answer = run(newer, ends - time.monotonic())
            except SlurmError as error:
                if "option" not in str(error):
                    raise
                self._nodes_command = older
            else:
                self._nodes_command = newer
                return records(answer, NODES)
        return records(run(self._nodes_command, ends - time.monotonic()), NODES)

    def _controller(self, page: Page) -> Iterable[Family]:
        families = Families()
        add_page(families, page, self._settings.timeout * SPARE)
        return families.collected()

    def _read_job(self, entry: Mapping[str, Any]) -> Job:
        return read_job(entry, self._settings.name_filter)

    def _read_all(
        self, kind: str, entries: Iterable[Any], read: Callable[[Mapping[str, Any]], T], outcomes: Counter[str]
    ) -> list[T]:
        """Read every record; one that is odd costs no other, and is named once."""
        found = []
        for entry in entries:
            try:
                found.append(read(entry))
            except (ValueError, TypeError, AttributeError, KeyError) as error:  # noqa: PERF203  # each by itself
                outcomes["unreadable"] += 1
                message = label_text(f"{kind}: {error}", 300)
                if message not in self._logged and len(self._logged) < 100:
                    self._logged.add(message)
                    log.warning("%s", message)
        return found

    def _note(self, kind: str, outcomes: Counter[str]) -> None:
        with self._lock:
            self._records[kind] = outcomes


def expected(jobs: Iterable[Job], now: float) -> dict[str, float]:
    """Return the runs that should be leaving records, each with the start of its job; one that queues is not late."""
    found: dict[str, float] = {}
    for job in jobs:
        if job.state == "running" and job.run_id is not None:
            found[job.run_id] = max(job.started or now, found.get(job.run_id, 0.0))
    return found


def _by_need(node: Node) -> tuple[bool, bool, str]:
    """First the nodes that need somebody, then those with GPUs."""
    return node.state in _WELL and not node.reason, not node.gpus, node.name
