"""Driver `slurm`: the client commands, because they are on every cluster and need no key of their own.

An answer of scontrol is never the truth: it may fail and have taken effect, or succeed and have done nothing. The next
`squeue` decides.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from pathlib import Path

from trainwarden.clients.slurm.client import (
    JOB_ID,
    CommandsMissing,
    SlurmClient,
    SlurmError,
    UnreadableRecord,
    find_commands,
)
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    CallResult,
    JobState,
    Reading,
    RestartTarget,
    ScheduledJob,
)
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.incident import clean

# Where more jobs are read at once, one list of all costs the controller less.
_MAX_SINGLE_READS = 8
_NO_SUCH_JOB = re.compile("invalid job id", re.IGNORECASE)
_ENDED_BADLY = frozenset({"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL"})
_IN_BETWEEN = frozenset({"COMPLETING", "REQUEUED", "REQUEUE_FED", "STAGE_OUT", "SIGNALING"})
_LIVE = frozenset({"RUNNING", "CONFIGURING", "RESIZING"})


def slurm_client(folder: Path | None, timeout: float) -> SlurmClient:
    """Return a client of the commands in `folder`, else on PATH; raises `ConfigError` naming what is missing."""
    try:
        return SlurmClient(find_commands(folder, ("squeue", "scontrol")), timeout)
    except CommandsMissing as error:
        raise ConfigError([f"--driver slurm: {error}; see --slurm-bin-dir"]) from None


class SlurmDriver:
    """Ends attempts by `requeuehold`, which keeps the job's id and holds its next start, and starts them by `release`.

    Touches only jobs of `users` that carry the run's mark in their comment.

    Args:
        client: the cluster's commands.
        users: uids.
        interval: seconds for which a reading serves, unless `refresh` discards it.
    """

    name = "slurm"
    two_phase = True

    def __init__(self, client: SlurmClient, users: Collection[int], interval: float) -> None:
        self._client = client
        self._users = frozenset(users)
        self._interval = interval
        self._filter_works = True
        self.refresh()

    def refresh(self) -> None:
        """Discard what was read."""
        self._queue = _Queue()

    def job(self, job_id: str) -> Reading:
        """Read one job."""
        found = self._find(job_id)
        return self._as_job(found) if isinstance(found, SlurmJob) else found

    def prepare(self, target: RestartTarget) -> CallResult:
        """`requeuehold`, with Incomplete unless the job has ended: it must not revive what ends by itself meanwhile."""
        found = self._find(target.job_id)
        job = self._as_job(found) if isinstance(found, SlurmJob) else None
        if not isinstance(found, SlurmJob) or found.target is None or job is None or job.refusal is not None:
            return CallResult(CallOutcome.UNCLEAR, "nothing was called: the job could not be read")
        ended = job.state is JobState.FAILED
        if not ended and job.state is not JobState.RUNNING:
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: the job is {job.scheduler_state}")
        return self._control("requeuehold", found.target, *([] if ended else ["Incomplete"]))

    def commit(self, target: RestartTarget) -> CallResult:
        """`release`; on a job that runs or waits already it changes nothing."""
        found = self._find(target.job_id)
        if not isinstance(found, SlurmJob) or found.target is None:
            return CallResult(CallOutcome.UNCLEAR, "nothing was called: the job could not be read")
        return self._control("release", found.target)

    def _control(self, verb: str, target: str, *options: str) -> CallResult:
        result = self._client.control(verb, target, *options)
        outcome = CallOutcome.REFUSED if result.refused else CallOutcome.UNCLEAR
        return CallResult(CallOutcome.ACCEPTED if result.accepted else outcome, clean(result.detail, 800))

    def _find(self, job_id: str) -> SlurmJob | Absent | Unknown:
        """Find a job in what was read, else read it by itself, else in a list of all.

        Only a complete list of all jobs shows that a job is not there.
        """
        if self._queue.read_at is not None and time.monotonic() - self._queue.read_at > self._interval:
            self.refresh()
        queue = self._queue
        if job_id not in queue.jobs and not queue.complete and len(queue.read_alone) < _MAX_SINGLE_READS:
            self._read_alone(queue, job_id)
        if job_id not in queue.jobs and not queue.complete:
            self._read(queue, None)
        if job_id not in queue.jobs and queue.problem is None:
            # The list of all leaves out jobs of hidden partitions, which squeue shows where it is given their id.
            self._read_alone(queue, job_id)
        if job_id in queue.jobs:
            return queue.jobs[job_id]
        return queue.problem or queue.unread.get(job_id) or Absent()

    def _read_alone(self, queue: _Queue, job_id: str) -> None:
        """Read one job, unless it was tried since the last `refresh`, or squeue lists all jobs anyway."""
        if self._filter_works and job_id not in queue.read_alone and JOB_ID.fullmatch(job_id):
            queue.read_alone.add(job_id)
            self._read(queue, job_id)

    def _read(self, queue: _Queue, only: str | None) -> None:
        """Add to what was read: one job, or all where `only` is None."""
        found: dict[str, SlurmJob | Unknown] = {}
        nameless = foreign = False
        try:
            for job in self._client.jobs(only):
                if isinstance(job, UnreadableRecord):
                    nameless = True
                    continue
                foreign = foreign or _is_foreign(job, only)
                twice = job.job_id in found
                found[job.job_id] = Unknown(f"squeue: job {job.job_id} is listed twice") if twice else _checked(job)
        except SlurmError as error:
            # SLURM may fail for a job that it does not have: the list of all shows whether that is so.
            if only is None or error.reason in ("missing", "timeout", "authentication"):
                queue.complete, queue.problem = True, Unknown(clean(error.message))
            elif not _NO_SUCH_JOB.search(error.message):
                queue.unread[only] = Unknown(clean(error.message))
        else:
            nameless_record = Unknown("squeue: a record that names no job may be of this one")
            if only is None:
                queue.complete, queue.problem = True, nameless_record if nameless else None
            elif nameless:
                found.setdefault(only, nameless_record)
            queue.jobs.update(found)
            self._filter_works = self._filter_works and not foreign
        if queue.read_at is None:
            queue.read_at = time.monotonic()

    def _as_job(self, found: SlurmJob) -> ScheduledJob:
        return ScheduledJob(
            job_id=found.job_id,
            run_id=found.run_id,
            generation=found.restarts or 0,
            state=job_state(found),
            scheduler_state=clean("+".join(sorted(found.flags)), 80),
            refusal=self._refusal(found),
        )

    def _refusal(self, found: SlurmJob) -> str | None:
        if found.user_id not in self._users:
            return f"job {found.job_id} belongs to uid {found.user_id}; see --slurm-allow-user"
        if found.heterogeneous:
            return f"job {found.job_id} is heterogeneous: its parts cannot be requeued one by one"
        if found.target is None:
            return f"job {found.job_id} stands for several array tasks"
        if found.requeue is False:
            return f"job {found.job_id} was submitted with --no-requeue"
        if found.held_by_admin:
            return f"job {found.job_id} is held by an administrator"
        return None


class _Queue:
    """What was read of the queue.

    Attributes:
        jobs: by id; Unknown where the record of that job cannot be used.
        complete: no job is to be looked for outside of `jobs`.
        problem: why a job may exist although it is not in `jobs`.
        unread: why a job could not be read by itself, by id: a list of all may leave it out.
        read_alone: ids of the jobs that were read by themselves, or could not be.
        read_at: end of the first reading, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, SlurmJob | Unknown] = {}
        self.complete = False
        self.problem: Unknown | None = None
        self.unread: dict[str, Unknown] = {}
        self.read_alone: set[str] = set()
        self.read_at: float | None = None


def _is_foreign(job: SlurmJob, only: str | None) -> bool:
    """Return whether a version of squeue that filters would have left it out."""
    array = job.target.partition("_")[0] if job.target else job.job_id
    return only is not None and only not in (job.job_id, array) and not job.heterogeneous


def _checked(job: SlurmJob) -> SlurmJob | Unknown:
    """Return the job, if its record has all that a decision needs."""
    needed = {"job_state": job.flags, "restart_cnt": job.restarts is not None, "user_id": job.user_id is not None}
    missing = [name for name, there in needed.items() if not there]
    return Unknown(f"squeue: the record of job {job.job_id} has no usable {', '.join(missing)}") if missing else job


def job_state(job: SlurmJob) -> JobState:
    """Return the state that matters; a flag such as COMPLETING outweighs the state that it decorates."""
    if job.flags & _IN_BETWEEN:
        return JobState.ENDING
    if "CANCELLED" in job.flags:
        return JobState.CANCELLED
    if "COMPLETED" in job.flags:
        return JobState.COMPLETED
    if job.flags & _ENDED_BADLY:
        return JobState.FAILED
    if job.flags & {"PENDING", "REQUEUE_HOLD"}:
        return JobState.HELD if job.held else JobState.WAITING
    return JobState.RUNNING if job.flags & _LIVE else JobState.OTHER
