"""SLURM's queue as of one moment: the jobs that are asked for, by as few calls of squeue as show them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from trainwarden.clients.slurm.client import JOB_ID, SlurmClient, SlurmError, UnreadableRecord
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden_remediator.drivers.driver import Absent
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean

# Where more jobs are read at once, one list of all costs the controller less.
_MAX_SINGLE_READS = 8
_NO_SUCH_JOB = re.compile("invalid job id", re.IGNORECASE)
_NOT_ENDED = frozenset({"PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED"})


class Squeue:
    """The command of a cluster, and what is known of it, for all queues that are read with it.

    Attributes:
        client: the cluster's commands.
        filters: it lists the jobs alone that it is asked for, as it does since 24.05.
    """

    def __init__(self, client: SlurmClient) -> None:
        self.client = client
        self.filters = True


class SlurmQueue:
    """Reads each job once, when it is first asked for. Not for several threads.

    Args:
        squeue: the command.
        wanted: ids of jobs that are read with the first.
    """

    def __init__(self, squeue: Squeue, wanted: Collection[str] = ()) -> None:
        self._squeue = squeue
        self._wanted = _valid(wanted)
        # By id; Unknown where the record of that job cannot be used.
        self._jobs: dict[str, SlurmJob | Unknown] = {}
        # No job is to be looked for outside of these.
        self._complete = False
        # Why a job may exist although it is not among these.
        self._problem: Unknown | None = None
        # Why a job could not be read by itself, by id: a list of all may leave it out.
        self._unread: dict[str, Unknown] = {}
        # Ids of the jobs that were read by themselves, or could not be.
        self._read_alone: set[str] = set()
        # How jobs ended that are gone, by id.
        self._ended: dict[str, Absent | Unknown] = {}

    def find(self, job_id: str) -> SlurmJob | Absent | Unknown:
        """Find a job in what was read, else read it by itself, else in a list of all.

        Only a complete list of all jobs shows that a job is not there.
        """
        if self._wanted and self._squeue.filters and not self._complete:
            wanted, self._wanted = tuple(sorted(self._wanted | _valid((job_id,)))), frozenset()
            self._read(*wanted)
        if job_id not in self._jobs and not self._complete and len(self._read_alone) < _MAX_SINGLE_READS:
            self._read_one(job_id)
        if job_id not in self._jobs and not self._complete:
            self._read()
        if job_id not in self._jobs and self._problem is None:
            # It counts as gone only where squeue does not show it by its id either.
            self._read_one(job_id)
        if job_id in self._jobs:
            return self._jobs[job_id]
        return self._problem or self._unread.get(job_id) or self._absent(job_id)

    def all(self) -> Sequence[SlurmJob] | Unknown:
        """Return the jobs that can be used; unknown where one may be missing."""
        if not self._complete:
            self._read()
        return self.known() if self._problem is None else self._problem

    def known(self) -> Sequence[SlurmJob]:
        """Return what was read so far and can be used."""
        return [job for job in self._jobs.values() if isinstance(job, SlurmJob)]

    def _absent(self, job_id: str) -> Absent | Unknown:
        """Read from the accounting how a job ended that slurmctld has forgotten.

        The end of a job reaches it late where slurmdbd was down: until then the job is unknown.
        """
        if job_id not in self._ended:
            gone = f"slurmctld no longer lists job {job_id}"
            try:
                state = clean(self._squeue.client.accounted_state(job_id), 40)
            except SlurmError as error:
                self._ended[job_id] = Unknown(clean(f"{gone}, and of its end: {error.message}"))
            else:
                late = Unknown(f"{gone}, and the accounting has it as {state}")
                self._ended[job_id] = late if state in _NOT_ENDED else Absent(state)
        return self._ended[job_id]

    def _read_one(self, job_id: str) -> None:
        """Read one job, unless it was tried already, or squeue lists all jobs anyway."""
        if self._squeue.filters and job_id not in self._read_alone and JOB_ID.fullmatch(job_id):
            self._read(job_id)

    def _read(self, *only: str) -> None:
        """Add to what was read: the named jobs, or all where none is named."""
        found: dict[str, SlurmJob | Unknown] = {}
        nameless = foreign = False
        try:
            for job in self._squeue.client.jobs(*only):
                if isinstance(job, UnreadableRecord):
                    nameless = True
                    continue
                foreign = foreign or _is_foreign(job, only)
                twice = job.job_id in found
                found[job.job_id] = Unknown(f"squeue: job {job.job_id} is listed twice") if twice else _checked(job)
        except SlurmError as error:
            # SLURM may fail for a job that it does not have: the list of all shows whether that is so.
            if not only or error.reason in ("missing", "timeout", "authentication"):
                self._complete, self._problem = True, Unknown(clean(error.message))
            elif len(only) == 1:
                self._read_alone.add(only[0])
                if not _NO_SUCH_JOB.search(error.message):
                    self._unread[only[0]] = Unknown(clean(error.message))
        else:
            self._read_alone.update(only)
            nameless_record = Unknown("squeue: a record that names no job may be of this one")
            if not only:
                self._complete, self._problem = True, nameless_record if nameless else None
            elif nameless:
                found = {**dict.fromkeys(only, nameless_record), **found}
            self._jobs.update(found)
            self._squeue.filters = self._squeue.filters and not foreign


def _valid(job_ids: Collection[str]) -> frozenset[str]:
    return frozenset(each for each in job_ids if JOB_ID.fullmatch(each))


def _is_foreign(job: SlurmJob, only: Collection[str]) -> bool:
    """Return whether a version of squeue that filters would have left it out."""
    array = job.target.partition("_")[0] if job.target else job.job_id
    return bool(only) and job.job_id not in only and array not in only and not job.heterogeneous


def _checked(job: SlurmJob) -> SlurmJob | Unknown:
    """Return the job, if its record has all that a decision needs."""
    needed = {"job_state": job.flags, "restart_cnt": job.restarts is not None, "user_id": job.user_id is not None}
    missing = [name for name, there in needed.items() if not there]
    return Unknown(f"squeue: the record of job {job.job_id} has no usable {', '.join(missing)}") if missing else job
