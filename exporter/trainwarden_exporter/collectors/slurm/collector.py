"""The collector of a SLURM cluster. Jobs and nodes are read apart from each other."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from trainwarden.clients.slurm.client import REASONS, SlurmError, UnreadableRecord
from trainwarden.clients.slurm.jobs import ENDED_STATES, SlurmJob
from trainwarden.clients.slurm.nodes import NODE_STATES
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.redaction import label_text
from trainwarden_exporter.collectors.runs.limits import fair_order
from trainwarden_exporter.collectors.slurm import metrics
from trainwarden_exporter.collectors.slurm.groups import JobGroups
from trainwarden_exporter.collectors.slurm.series import (
    add_job,
    add_job_nodes,
    add_job_totals,
    add_node,
    add_node_totals,
)
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.shared_state import JobEnd
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.task import SampleTask

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trainwarden.clients.slurm.client import SlurmClient
    from trainwarden.clients.slurm.nodes import SlurmNode
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

T = TypeVar("T")

JOBS, NODES, JOB_NODES = "jobs", "nodes", "job_nodes"
OUTCOMES = ("exported", "other", "dropped", "unreadable")
# Nodes of jobs on the page, at most.
MAX_JOB_NODES = 20_000
# Part of a sample's time after which a command is ended: its error is shown before the sample counts as hung.
SPARE = 0.9
# States of nodes that are left out first where there are too many.
_WELL = frozenset(NODE_STATES) - {"down", "not_responding", "fail", "drained", "draining", "unknown"}


@dataclass(frozen=True)
class SlurmSettings:
    """What is read and how much of it is exported; times in seconds.

    Attributes:
        client: its timeout is shorter than that of a sample.
        name_filter: matches names of jobs that work for the run of its group `run_id`; a mark in the comment wins.
        max_groups: partitions, accounts, users and reasons exported, of each.
        expect: takes the runs that should have a record, and since when, Unix seconds; None: not known here.
        put_ended: takes the ends of all jobs, by attempt key.
    """

    client: SlurmClient
    interval: float
    timeout: float
    max_jobs: int
    max_nodes: int
    name_filter: re.Pattern[str] | None = None
    max_groups: int = 200
    expect: Callable[[Mapping[str, float]], None] | None = None
    put_ended: Callable[[Mapping[str, JobEnd]], None] = lambda _ends: None


class SlurmCollector:
    """Jobs of runs, and nodes, with one command each per sample: `squeue`, and `scontrol` or `sinfo`."""

    name = "slurm"

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._records: dict[str, Counter[str]] = {}
        self._logged: set[str] = set()

    def collect(self) -> Iterable[Family]:
        """Return counters of errors and records."""
        families = Families()
        with self._lock:
            for part in self.tasks():
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

    def tasks(self) -> list[SampleTask]:
        """Return the tasks, one for each source."""
        reads: dict[str, Callable[[], Iterable[Family]]] = {JOBS: self._jobs, NODES: self._nodes}
        interval, timeout = self._settings.interval, self._settings.timeout
        return [
            SampleTask(self.name, self._counted(device, read), interval, timeout, device)
            for device, read in reads.items()
        ]

    def close(self) -> None:
        """Do nothing: no resource is held between two samples."""

    def _counted(self, source: str, read: Callable[[], Iterable[Family]]) -> Callable[[], Iterable[Family]]:
        def counted() -> Iterable[Family]:
            try:
                return read()
            except SlurmError as error:
                with self._lock:
                    self._errors[source, error.reason] += 1
                    for kind in (source, JOB_NODES) if source == JOBS else (source,):
                        self._records.pop(kind, None)
                if source == JOBS and self._settings.expect:
                    self._settings.expect({})
                raise SlurmError(error.reason, label_text(error.message, 400)) from error

        return counted

    def _jobs(self) -> Iterable[Family]:
        outcomes: Counter[str] = Counter()
        states: dict[str, str] = {}  # by id, which stands once on the page: of several records the last counts
        ours: dict[str, tuple[SlurmJob, str]] = {}
        ends: dict[str, JobEnd] = {}
        groups = JobGroups(self._settings.max_groups)
        with calling("squeue --json --states=all"):
            for job in self._readable(JOBS, self._settings.client.jobs(), outcomes):
                groups.add(job)
                if job.end:
                    ends[f"slurm:{job.job_id}:{job.restarts or 0}"] = JobEnd(job.end, job.ended)
                try:
                    run_id = self._run_id(job)
                except ValueError as error:
                    self._skip(JOBS, str(error), outcomes)
                    continue
                states[job.job_id] = job.state
                ours.pop(job.job_id, None)
                if run_id is not None:
                    ours[job.job_id] = job, run_id
        in_turn = fair_order(ours.values(), lambda found: found[0].user, lambda found: _by_end(found[0]))
        exported = sorted(in_turn[: self._settings.max_jobs], key=lambda found: _by_end(found[0]))
        outcomes.update(exported=len(exported), dropped=len(ours) - len(exported), other=len(states) - len(ours))
        families = Families()
        for job, run_id in exported:
            add_job(families, job, run_id)
        self._add_job_nodes(families, [job for job, _ in exported])
        add_job_totals(families, states.values())
        groups.add_to(families)
        self._note(JOBS, outcomes)
        self._settings.put_ended(ends)
        if self._settings.expect:
            self._settings.expect(expected(exported, time.time()))
        return families.collected()

    def _add_job_nodes(self, families: Families, jobs: Iterable[SlurmJob]) -> None:
        outcomes: Counter[str] = Counter()
        for job in jobs:
            room = MAX_JOB_NODES - outcomes["exported"]
            try:
                added = add_job_nodes(families, job, room)
            except ValueError as error:
                self._skip(JOB_NODES, f"job {job.job_id}: {error}", outcomes)
                continue
            outcomes["exported"] += added
            if added == room and job.nodes is not None:
                outcomes["dropped"] += max(0, job.nodes - added)
        self._note(JOB_NODES, outcomes)

    def _run_id(self, job: SlurmJob) -> str | None:
        """Return the run that a job works for; raises `ValueError` if its mark or its name cannot be one."""
        if job.mark_problem:
            raise ValueError(f"job {job.job_id}: {job.mark_problem}")
        match = self._settings.name_filter.fullmatch(job.name) if self._settings.name_filter else None
        if job.run_id is not None or match is None or not match["run_id"]:
            return job.run_id
        try:
            return check_run_id(match["run_id"])
        except InvalidRunId as error:
            raise ValueError(f"job {job.job_id}: {error}") from error

    def _nodes(self) -> Iterable[Family]:
        outcomes: Counter[str] = Counter()
        with calling("scontrol show nodes --json or sinfo --json"):
            found = {node.name: node for node in self._readable(NODES, self._settings.client.nodes(), outcomes)}
        nodes = sorted(found.values(), key=_by_need)
        exported = nodes[: self._settings.max_nodes]
        outcomes.update(exported=len(exported), dropped=len(nodes) - len(exported))
        families = Families()
        for node in exported:
            add_node(families, node)
        add_node_totals(families, nodes)
        self._note(NODES, outcomes)
        return families.collected()

    def _readable(self, kind: str, records: Iterable[T | UnreadableRecord], outcomes: Counter[str]) -> Iterator[T]:
        for record in records:
            if isinstance(record, UnreadableRecord):
                self._skip(kind, record.problem, outcomes)
            else:
                yield record

    def _skip(self, kind: str, problem: str, outcomes: Counter[str]) -> None:
        """Count a record that is not exported; log each problem once."""
        outcomes["unreadable"] += 1
        message = label_text(f"{kind}: {problem}", 300)
        if message not in self._logged and len(self._logged) < 100:
            self._logged.add(message)
            log.warning("%s", message)

    def _note(self, kind: str, outcomes: Counter[str]) -> None:
        with self._lock:
            self._records[kind] = outcomes


def expected(jobs: Iterable[tuple[SlurmJob, str]], now: float) -> dict[str, float]:
    """Return the runs that should write records, each with the start of its job; a job that waits need not yet."""
    found: dict[str, float] = {}
    for job, run_id in jobs:
        if job.state == "running":
            found[run_id] = max(job.started or now, found.get(run_id, 0.0))
    return found


def _by_end(job: SlurmJob) -> tuple[bool, float, int]:
    """First the jobs that have not ended, then the last to end."""
    return job.state in ENDED_STATES, -(job.ended or 0.0), -int(job.job_id)


def _by_need(node: SlurmNode) -> tuple[bool, bool, str]:
    """First the nodes that are out of order, then those with GPUs."""
    return node.state in _WELL and not node.reason, not node.gpus, node.name
