"""A job of Ray as a run: its name, its log, and what its record states about it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slurm.jobs import expanded_run_id
from trainwarden.identity import AttemptKey, check_run_id
from trainwarden.jobs.job_log import MAX_LAG
from trainwarden.jobs.job_record import WatchedJob

if TYPE_CHECKING:
    from trainwarden.clients.ray_jobs import RayJobs, SubmittedJob
    from trainwarden.jobs.configuration import JobRule

# In the record of a run: the output of its job, as Ray's API returns it.
SPOOL = ".ray-output"
# Ray returns the whole output each time; so many times as long as that took is waited before it is asked again.
_PAUSES = 20.0
_ENTRYPOINT = b"Running entrypoint for job "
_TOKEN = re.compile("%[j%]")


def run_id_of(job: SubmittedJob, rule: JobRule) -> str:
    """Return the run that a job is an attempt of: by its metadata, else by its environment, else by the rule.

    Raises:
        InvalidRunId: the rule gives none for this job.
    """
    return job.job.run_id or check_run_id(expanded_run_id(rule.run_id, {"j": job.job.submission_id}))


def rule_paths(job: SubmittedJob, paths: Collection[str]) -> tuple[str, ...]:
    """Return paths of a rule with the submission id in place of `%j`."""
    names = {"%j": job.job.submission_id, "%%": "%"}
    return tuple(_TOKEN.sub(lambda match: names[match[0]], path) for path in paths)


def watched_job(job: SubmittedJob, run_id: str, rule: JobRule, log_roots: Collection[str] = ("/",)) -> WatchedJob:
    """Return a job of Ray as its record describes it; its user is that of this process, for Ray has none.

    Raises:
        InvalidAttemptKey: its id can be in none.
    """
    settings: dict[str, Any] = {
        "environment": {"ray_submission_id": job.job.submission_id},
        "signals": rule.signals,
        "policy": rule.policy,
        "framework": rule.framework,
        "model": rule.model,
    }
    folder = rule.checkpoints
    return WatchedJob(
        run_id=run_id,
        key=AttemptKey("ray", job.job.submission_id, 0),
        user_id=os.geteuid(),
        logs=rule_paths(job, rule.logs),
        started=job.job.start,
        settings={name: value for name, value in settings.items() if value},
        inactivity=rule.inactivity,
        restart_stalls=rule.restart_stalls,
        log_roots=tuple(log_roots),
        checkpoints=None if folder is None else folder.in_folder(rule_paths(job, [folder.path])[0]),
        not_printed=_ENTRYPOINT,
    )


def session_log(folder: Path, session: str, submission_id: str) -> str | None:
    """Return the path of a job's output in the folder of a session; None where it is not there to be read.

    Args:
        folder: of the session, or a link to it such as `session_latest`.
        session: its name by the head: the folder may be that of another.
        submission_id: of the job.
    """
    real = Path(os.path.realpath(folder))
    file = real / "logs" / f"job-driver-{submission_id}.log"
    try:
        is_there = real.name == session and file.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return None
    return str(file) if is_there and os.access(file, os.R_OK) else None


class SpooledOutput:
    """The output of a job by Ray's API, in a file in which each byte has the place that it has in the output.

    Args:
        jobs: of the cluster.
        submission_id: of the job.
        file: its path; what is there already was fetched before.
    """

    def __init__(self, jobs: RayJobs, submission_id: str, file: Path) -> None:
        self._jobs, self._submission_id, self._file = jobs, submission_id, file
        self._next = 0.0

    def fetch(self, *, over: bool = False) -> None:
        """Append what is new; nothing where it was fetched a short while ago.

        Args:
            over: the job has ended: fetch in any case.

        Raises:
            RayError: there is no usable answer.
            OSError: the file cannot be written.
        """
        began = time.monotonic()
        if began < self._next and not over:
            return
        try:
            data = self._jobs.logs(self._submission_id).encode("utf-8", "replace")
        finally:
            now = time.monotonic()
            self._next = now + _PAUSES * (now - began)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            known = os.fstat(descriptor).st_size
            # What lies further back is not read, and is a hole in the file.
            place = max(known, len(data) - MAX_LAG)
            with memoryview(data) as view:
                while place < len(data):
                    place += os.pwrite(descriptor, view[place:], place)
        finally:
            os.close(descriptor)
