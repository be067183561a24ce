"""What partitions, accounts and users have running and waiting, bounded in number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden.clients.slurm.jobs import ALLOCATED_STATES
from trainwarden.redaction import label_text, name_text
from trainwarden_exporter.collectors.slurm import metrics

if TYPE_CHECKING:
    from trainwarden.clients.slurm.jobs import SlurmJob
    from trainwarden_exporter.core.metric import Families

NAME_BYTES = 64
RUNNING, PENDING = "running", "pending"
# The sum of the groups beyond the limit; no name that SLURM gives begins so.
OTHERS = "_others"
_KINDS = {
    "partition": (metrics.SLURM_PARTITION_JOBS, metrics.SLURM_PARTITION_GPUS_ALLOCATED),
    "account": (metrics.SLURM_ACCOUNT_JOBS, metrics.SLURM_ACCOUNT_GPUS_ALLOCATED),
    "user": (metrics.SLURM_USER_JOBS, metrics.SLURM_USER_GPUS_ALLOCATED),
}


@dataclass
class _Kind:
    """The groups of one kind: numbers of jobs by group and state, allocated GPUs by group."""

    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    gpus: Counter[str] = field(default_factory=Counter)


class JobGroups:
    """Adds up the jobs that are allocated or wait.

    Args:
        limit: groups of each kind; the smallest are added up as `OTHERS`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kinds = {kind: _Kind() for kind in _KINDS}
        self._reasons: Counter[str] = Counter()
        self._gpus_known = False

    def add(self, job: SlurmJob) -> None:
        """Count one job; one that waits for several partitions counts in each."""
        state = RUNNING if job.state in ALLOCATED_STATES else PENDING if job.state == "pending" else ""
        if not state:
            return
        if state == PENDING:
            self._reasons[label_text(job.reason, NAME_BYTES)] += 1
        self._gpus_known |= bool(job.gpus)
        for kind, text in (("partition", job.partition), ("account", job.account), ("user", job.user)):
            groups = self._kinds[kind]
            for name in text.split(",") if kind == "partition" else [text]:
                shown = name_text(name, NAME_BYTES)
                groups.jobs[shown, state] += 1
                if state == RUNNING:
                    groups.gpus[shown] += job.gpus or 0

    def add_to(self, families: Families) -> None:
        """Add the series; those of GPUs are absent where SLURM shows no job's GPUs."""
        for kind, (jobs_metric, gpus_metric) in _KINDS.items():
            groups = self._kinds[kind]
            shown = self._shown(groups)
            jobs: Counter[tuple[str, str]] = Counter()
            gpus: Counter[str] = Counter()
            for (name, state), count in groups.jobs.items():
                jobs[name if name in shown else OTHERS, state] += count
                gpus[name if name in shown else OTHERS] += 0
            for name, count in groups.gpus.items():
                gpus[name if name in shown else OTHERS] += count
            for name in sorted(gpus):
                for state in (RUNNING, PENDING):
                    families.add(jobs_metric, jobs[name, state], **{kind: name}, state=state)
                families.add(gpus_metric, gpus[name] if self._gpus_known else None, **{kind: name})
        reasons = {reason for reason, _ in self._reasons.most_common(self._limit)}
        totals: Counter[str] = Counter()
        for reason, count in self._reasons.items():
            totals[reason if reason in reasons else OTHERS] += count
        for reason in sorted(totals):
            families.add(metrics.SLURM_PENDING_JOBS, totals[reason], reason=reason)

    def _shown(self, groups: _Kind) -> set[str]:
        """Return the groups with the most GPUs, then the most jobs."""
        numbers: Counter[str] = Counter()
        for (name, _), count in groups.jobs.items():
            numbers[name] += count
        ranked = sorted(numbers, key=lambda name: (-groups.gpus[name], -numbers[name], name))
        return set(ranked[: self._limit])
