"""One job that is watched until it ends, whatever a configuration says about the others."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slurm.client import JOB_ID, CommandsMissing, SlurmClient, UnreadableRecord, find_commands
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.jobs.configuration import JobRule, JobsConfiguration
from trainwarden.jobs.slurm_run import run_id_of
from trainwarden.jobs.slurm_watch import SlurmWatch
from trainwarden.jobs.watch import REFUSED, UNKNOWN, JobsWatch

if TYPE_CHECKING:
    from trainwarden.clients.slurm.jobs import SlurmJob

_SLURM_SECONDS = 30.0
_EXIT_STATUSES = {"succeeded": 0, REFUSED: 2, UNKNOWN: 3}


class AdoptedJob:
    """Keeps the record of a job, across its requeues.

    Args:
        watch: of this job alone.
        job_id: of the job.

    Attributes:
        run_id: its run; None before its record has begun.
    """

    def __init__(self, watch: JobsWatch[Any], job_id: str) -> None:
        self._watch = watch
        self._job_id = job_id
        self.run_id: str | None = None

    def look(self, seconds: float) -> int | None:
        """Look once, for so many seconds at most; return None while the job goes on.

        Returns:
            0 if it has succeeded, 1 if it has failed or was cancelled, 2 if it cannot be watched, 3 if it is gone and
            nothing shows how it ended.
        """
        self._watch.look(max(seconds, 1.0))
        self.run_id = self._watch.runs.get(self._job_id, self.run_id)
        outcome = self._watch.outcomes.get(self._job_id)
        if outcome is None:
            return None
        if self.run_id is None and outcome[1] not in (REFUSED, UNKNOWN):
            self.run_id = outcome[0]
        return _EXIT_STATUSES.get(outcome[1], 1)

    @property
    def ending(self) -> str:
        """How it ended, in words; empty while it goes on."""
        outcome = self._watch.outcomes.get(self._job_id)
        return f"run {self.run_id or outcome[0]}: {outcome[1]}" if outcome else ""

    def close(self) -> None:
        """Close its log; its record stays open for the next process."""
        self._watch.close()


def adopt_slurm_job(
    client: SlurmClient, configuration: JobsConfiguration, job: SlurmJob, rule: JobRule, run_id: str | None = None
) -> AdoptedJob:
    """Return a job of SLURM under watch.

    Args:
        client: of the cluster.
        configuration: of the records.
        job: as it is listed now.
        rule: of the job.
        run_id: its run; None for that of its mark, or of the rule.

    Raises:
        UsageError: it can be no run, or its mark is another.
    """
    try:
        name = check_run_id(run_id) if run_id else run_id_of(job, rule)
    except InvalidRunId as error:
        raise UsageError(str(error)) from None
    if run_id and job.run_id not in (None, run_id):
        raise UsageError(f"job {job.job_id} is marked with run {job.run_id}, expected that as --run-id")
    alone = replace(configuration, rules=(), marked=False)
    watch = SlurmWatch(client, alone, [job.job_id], replace(rule, run_id=name or rule.run_id))
    return AdoptedJob(watch, job.job_id)


def find_job(client: SlurmClient, wanted: str) -> SlurmJob:
    """Return the job of an id such as `4711` or `4711_3`.

    Raises:
        UsageError: SLURM lists none, or several.
        SlurmError: it gives no answer.
    """
    if not JOB_ID.fullmatch(wanted.partition("_")[0]):
        raise UsageError(f"{wanted[:40]!r} is no job id, expected one such as 4711 or 4711_3")
    found = [job for job in client.jobs() if not isinstance(job, UnreadableRecord)]
    job = next((job for job in found if wanted in (job.job_id, job.queue_id)), None)
    if job is None:
        raise UsageError(f"squeue lists no job {wanted}")
    if job.target is None:
        raise UsageError(f"job {wanted} stands for several tasks of an array, expected one such as {wanted}_1")
    return job


def job_client(folder: Path | None) -> SlurmClient:
    """Return a client of the commands in a folder, or of those on PATH.

    Raises:
        UsageError: they are not there.
    """
    try:
        commands = find_commands(folder, ("squeue", "scontrol"))
    except CommandsMissing as error:
        raise UsageError(f"{error}; see --slurm-bin-dir") from None
    with contextlib.suppress(CommandsMissing):  # where there is no accounting
        commands |= find_commands(folder, ("sacct",))
    return SlurmClient(commands, _SLURM_SECONDS)
