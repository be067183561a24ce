"""A job of SLURM as a run: its name, its logs, and what its record states about it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slurm.jobs import RUN_MARK, comment_words, expanded_run_id, job_names
from trainwarden.clients.slurm.output_paths import output_path, output_paths
from trainwarden.identity import AttemptKey
from trainwarden.jobs.job_record import WatchedJob

if TYPE_CHECKING:
    from trainwarden.clients.slurm.jobs import SlurmJob
    from trainwarden.jobs.configuration import JobRule


def run_id_of(job: SlurmJob, rule: JobRule) -> str | None:
    """Return the run that a job is an attempt of: by its mark, else by the rule; None where it is not known yet.

    The tasks of an array whose mark does not tell them apart are runs of their own.

    Raises:
        InvalidRunId: the rule gives none for this job.
    """
    names = job_names(job.job_id, job.array_job_id, job.array_task_id or None, job.name, job.user)
    if job.run_id is None:
        return expanded_run_id(rule.run_id, names)
    has_task = job.run_id.endswith(f"_{job.array_task_id}")
    if job.array_task_id and not has_task and f"{RUN_MARK}{job.run_id}" in comment_words(job.comment):
        return expanded_run_id(f"{job.run_id[:100]}_%a", names)
    return job.run_id


def job_logs(job: SlurmJob, rule: JobRule) -> tuple[str, ...]:
    """Return the paths of a job's output: those of its rule, else those that it was submitted with."""
    if not rule.logs:
        return output_paths(job)
    return tuple(found for name in rule.logs if (found := output_path(name, job)))


def watched_job(job: SlurmJob, run_id: str, rule: JobRule, log_roots: Collection[str] = ("/",)) -> WatchedJob:
    """Return a job of SLURM as its record describes it.

    Raises:
        InvalidAttemptKey: its id can be in none.
    """
    environment = {
        "slurm_job_name": job.name,
        "slurm_job_user": job.user,
        "slurm_job_partition": job.partition,
        "slurm_job_account": job.account,
        "slurm_array_job_id": job.array_job_id,
        "slurm_array_task_id": job.array_task_id,
        "slurm_node": job.batch_host,
    }
    settings: dict[str, Any] = {
        "environment": {name: value[:200] for name, value in environment.items() if value},
        "signals": rule.signals,
        "policy": rule.policy,
        "framework": rule.framework,
        "model": rule.model,
    }
    place = output_path(rule.checkpoints.path, job) if rule.checkpoints is not None else None
    checkpoints = rule.checkpoints.in_folder(place) if rule.checkpoints is not None and place else None
    return WatchedJob(
        run_id=run_id,
        key=AttemptKey.parse(job.attempt_key),
        user_id=-1 if job.user_id is None else job.user_id,
        logs=job_logs(job, rule),
        started=job.started,
        settings={name: value for name, value in settings.items() if value},
        inactivity=rule.inactivity,
        restart_stalls=rule.restart_stalls,
        log_roots=tuple(log_roots),
        checkpoints=checkpoints,
    )
