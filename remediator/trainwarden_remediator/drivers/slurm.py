"""Driver `slurm`: the client commands, because they are on every cluster and need no key of their own.

An answer of scontrol is never the truth: it may fail and have taken effect, or succeed and have done nothing. The next
`squeue` decides.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from trainwarden.clients.slurm.client import (
    NODE_NAME,
    ControlResult,
    SlurmClient,
    SlurmError,
)
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden.clients.slurm.rights import Rights
from trainwarden.record.clock import to_iso
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    CallResult,
    JobState,
    Reading,
    RestartTarget,
    ScheduledJob,
    Shape,
)
from trainwarden_remediator.drivers.slurm_access import OwnRights
from trainwarden_remediator.drivers.slurm_dependents import dependents_objection, point_dependents
from trainwarden_remediator.drivers.slurm_jobs import ENDED_BADLY, excluded_nodes, scheduled_job
from trainwarden_remediator.drivers.slurm_marks import with_hold
from trainwarden_remediator.drivers.slurm_queue import SlurmQueue, Squeue
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean

log = logging.getLogger(__name__)

_MINUTE = 60.0
# From the end of a job to the call: two scrapes, the rules, group_wait and the quiet minute of a crash.
_DETECTION_SECONDS = 120.0


class SlurmDriver:
    """Ends attempts by `requeuehold`, which keeps the job's id and holds its next start, and starts them by `release`.

    Touches only jobs of `users` that carry the run's mark in their comment. One that cannot be requeued is ended by
    `scancel` and submitted again, where that is allowed; what its owner's other jobs wait for is then set anew.

    Args:
        client: the cluster's commands.
        users: uids.
        resubmission: submits jobs again; None where that is not allowed.
    """

    name = "slurm"
    shape = Shape.REQUEUE

    def __init__(self, client: SlurmClient, users: Collection[int], resubmission: Resubmission | None = None) -> None:
        self._client = client
        self._resubmission = resubmission
        self._users = frozenset(users)
        self._squeue = Squeue(client)
        self._rights = OwnRights(client)
        self._queue = SlurmQueue(self._squeue)

    def snapshot(self, job_ids: Collection[str] = ()) -> SlurmDriver:
        """Return a driver that reads the named jobs by one call of squeue, when the first is asked for."""
        fresh = copy.copy(self)
        fresh._queue = SlurmQueue(self._squeue, job_ids)  # noqa: SLF001  # of the same class
        return fresh

    def job(self, job_id: str) -> Reading:
        """Return one job as of this snapshot."""
        found = self._queue.find(job_id)
        if isinstance(found, Absent) and found.ended in ENDED_BADLY:
            return self._forgotten(job_id, found)
        return self._as_job(found) if isinstance(found, SlurmJob) else found

    def _forgotten(self, job_id: str, found: Absent) -> ScheduledJob | Absent:
        """Return a job that SLURM has forgotten and that failed by its accounting, where it can be submitted again."""
        kept = self._resubmission.kept(job_id) if self._resubmission is not None else None
        if kept is None or self._resubmission is None:
            return found
        return ScheduledJob(
            job_id,
            kept.run_id,
            0,
            JobState.FAILED,
            found.ended,
            refusal=self._not_allowed(job_id, kept.user_id) or self._resubmission.of_user(kept.user_id),
            user=kept.user_id,
            shape=Shape.RESUBMIT,
        )

    def _not_allowed(self, job_id: str, uid: int | None) -> str | None:
        return None if uid in self._users else f"job {job_id} belongs to uid {uid}; see --slurm-allow-user"

    def jobs(self) -> Sequence[ScheduledJob] | Unknown:
        """Return the jobs that carry the mark of a run; reads a list of all."""
        found = self._queue.all()
        return found if isinstance(found, Unknown) else [self._as_job(job) for job in found if job.run_id]

    def unmarked(self) -> Sequence[ScheduledJob]:
        """Return the jobs of `users` that run without the mark of a run, among those that were read."""
        found = [job for job in self._queue.known() if job.user_id in self._users and job.run_id is None]
        return [self._as_job(job) for job in found if job.state == "running"]

    def submitted(self, target: RestartTarget) -> Sequence[ScheduledJob] | Unknown:
        """Return the jobs of the run and of the allowed users whose comment has the token of the target."""
        jobs = self.jobs()
        if isinstance(jobs, Unknown):
            return jobs
        stored = self.job(target.successor) if target.successor else None  # the list may lack it
        if isinstance(stored, Unknown):
            return stored
        found = {job.job_id: job for job in (*jobs, stored) if isinstance(job, ScheduledJob)}
        of_target = [job for job in found.values() if (job.submission, job.run_id) == (target.incident, target.run_id)]
        return sorted((job for job in of_target if job.user in self._users), key=lambda job: int(job.job_id))

    def discard(self, target: RestartTarget) -> CallResult:
        """`scancel --state=PENDING`, if the job still is one that was submitted for the target, and held."""
        found = self._queue.find(target.successor)
        if not isinstance(found, SlurmJob) or found.target is None:
            return CallResult(CallOutcome.UNCLEAR, "nothing was called: the job could not be read")
        job = self._as_job(found)
        if job.submission != target.incident or job.state is not JobState.HELD or job.refusal is not None:
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: the job is {job.scheduler_state}")
        return self._as_result(self._client.cancel_pending(found.target))

    def prepare(self, target: RestartTarget) -> CallResult:
        """`requeuehold`, with Incomplete unless the job has ended: it must not revive what ends by itself meanwhile.

        Writes into the job's comment whose hold it is: the only trace where the database is lost. Beside the call, not
        before it: what the call rests on would be older by an answer of SLURM.
        """
        found = self._queue.find(target.job_id)
        job = self._as_job(found) if isinstance(found, SlurmJob) else None
        if not isinstance(found, SlurmJob) or found.target is None or job is None or job.refusal is not None:
            return CallResult(CallOutcome.UNCLEAR, "nothing was called: the job could not be read")
        if job.state not in (JobState.RUNNING, JobState.FAILED):
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: the job is {job.scheduler_state}")
        if target.shape is Shape.RESUBMIT:
            return self._stop(found, target)
        if job.state is JobState.RUNNING:
            with ThreadPoolExecutor(1) as beside:
                beside.submit(self._note_hold, found, target)
                return self._control("requeuehold", found.target, "Incomplete")
        # SLURM changes no job that has ended: the comment follows while the next start is held.
        answer = self._control("requeuehold", found.target)
        if answer.outcome is CallOutcome.ACCEPTED:
            self._note_hold(found, target)
        return answer

    def _stop(self, found: SlurmJob, target: RestartTarget) -> CallResult:
        """`scancel`, once all that it takes to submit the job again is kept."""
        kept = self._resubmission.keep(found, anew=True) if self._resubmission else "see --slurm-resubmit"
        problem = kept or self._of_dependents(found)
        if isinstance(problem, Unknown):
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: {problem.reason}")
        if problem is not None:
            return CallResult(CallOutcome.REFUSED, f"nothing was called: {problem}")
        with ThreadPoolExecutor(1) as beside:
            beside.submit(self._note_hold, found, target)
            return self._as_result(self._client.cancel(found.target or ""))

    def _of_dependents(self, job: SlurmJob) -> str | Unknown | None:
        """Return why the job must not be ended, because of those that wait for it."""
        jobs = self._queue.all()
        if isinstance(jobs, Unknown):
            return jobs
        if not any(each.dependency for each in jobs):
            return None
        rights = self.rights()
        if isinstance(rights, Unknown):
            return rights
        return dependents_objection(job, jobs, cancels=rights.cancels_dependents)

    def _note_hold(self, found: SlurmJob, target: RestartTarget) -> None:
        """Write into the comment that the incident ends this start, where there is room for it."""
        comment = with_hold(found.comment, target)
        if found.target is None or comment is None:
            return
        noted = self._client.update(found.target, Comment=comment)
        if not noted.accepted:
            log.warning("job %s: its comment could not be set: %s", found.job_id, clean(noted.detail, 800))

    def boot(self) -> str | Unknown:
        """Return when slurmctld was started: it saves its state some seconds late, and a kill takes that back."""
        try:
            return clean(self._client.boot_time(), 40)
        except SlurmError as error:
            return Unknown(clean(error.message))

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        """Return why the job could not be brought back: its refusal, this user's rights, how soon SLURM forgets it.

        Keeps what it takes to submit a job again, where it cannot be requeued.
        """
        found = [] if job.refusal is None else [job.refusal]
        if job.shape is Shape.RESUBMIT and job.refusal is None and self._resubmission is not None:
            listed = self._queue.find(job.job_id)
            if isinstance(listed, SlurmJob):
                of_dependents = self._of_dependents(listed) if listed.state == "running" else None
                problems = (self._resubmission.keep(listed), of_dependents)
                found += [each.reason if isinstance(each, Unknown) else each for each in problems if each is not None]
        if job.run_id is None:
            found.append(f"job {job.job_id} has no mark trainwarden:RUN_ID in its comment")
        rights = self.rights()
        if isinstance(rights, Unknown):
            return [*found, f"the rights of this user in SLURM are unknown: {rights.reason}"]
        if rights.may_change(job.user, job.account) is False:
            needs = f"AdminLevel Operator, or to be a coordinator of account {job.account or '(none)'}"
            found.append(f"SLURM lets {rights.user} change no job of uid {job.user}: it needs {needs}")
        if rights.min_job_age is not None and rights.min_job_age < _DETECTION_SECONDS:
            found.append(
                f"SLURM forgets a failed job after {rights.min_job_age:g} s (MinJobAge), and a failure may take "
                f"{_DETECTION_SECONDS:g} s to reach the remediator"
            )
        return found

    def rights(self) -> Rights | Unknown:
        """Return what SLURM lets this process do; asked once an hour."""
        return self._rights.read()

    def exclude(self, target: RestartTarget) -> CallResult:
        """Set the job's ExcNodeList, while it waits, and read it back."""
        found = self._queue.find(target.job_id)
        if not isinstance(found, SlurmJob) or found.target is None:
            return CallResult(CallOutcome.UNCLEAR, "nothing was called: the job could not be read")
        before = excluded_nodes(found)
        if before is None or not all(NODE_NAME.fullmatch(node) for node in target.exclude_nodes):
            nodes = ", ".join((found.excluded_nodes, *target.exclude_nodes))
            return CallResult(CallOutcome.REFUSED, clean(f"nothing was called: no list of nodes: {nodes}"))
        wanted = set(before).difference(target.readmit_nodes).union(target.exclude_nodes)
        if wanted == set(before):
            return CallResult(CallOutcome.ACCEPTED, f"job {target.job_id} avoids {found.excluded_nodes or 'no node'}")
        answer = self._as_result(self._client.update(found.target, ExcNodeList=",".join(sorted(wanted))))
        if answer.outcome is not CallOutcome.ACCEPTED:
            return answer
        after = SlurmQueue(self._squeue, (target.job_id,)).find(target.job_id)
        if isinstance(after, SlurmJob) and set(excluded_nodes(after) or ()) == wanted:
            return answer
        return CallResult(CallOutcome.UNCLEAR, f"{answer.detail}, and the job does not show it")

    def commit(self, target: RestartTarget) -> CallResult:
        """`release`, after the nodes to avoid; on a job that runs or waits already it changes nothing.

        A job that cannot be requeued is submitted again first, and of several that came of that one is released.
        """
        if target.shape is Shape.RESUBMIT:
            return self._resubmit(target)
        return self._release(target)

    def _resubmit(self, target: RestartTarget) -> CallResult:
        if not target.successor:
            if self._resubmission is None:
                return CallResult(CallOutcome.REFUSED, "nothing was called: see --slurm-resubmit")
            old = self._queue.find(target.job_id)
            if isinstance(old, Unknown):
                return CallResult(CallOutcome.UNCLEAR, f"nothing was called: {old.reason}")
            return self._resubmission.submit(target, old if isinstance(old, SlurmJob) else None)
        submitted = self.submitted(target)
        if isinstance(submitted, Unknown):
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: {submitted.reason}")
        others = [job.job_id for job in submitted if job.job_id != target.successor and job.state is JobState.HELD]
        told = [self.discard(replace(target, successor=other)).detail for other in others]
        new = self._queue.find(target.successor)
        if isinstance(new, SlurmJob):
            told += point_dependents(self._client, target.job_id, new, self._queue.known())
        released = self._release(replace(target, job_id=target.successor))
        return CallResult(released.outcome, clean("; ".join((*told, released.detail)), 800))

    def _release(self, target: RestartTarget) -> CallResult:
        found = self._queue.find(target.job_id)
        if not isinstance(found, SlurmJob) or found.target is None:
            return CallResult(CallOutcome.UNCLEAR, "nothing was called: the job could not be read")
        if not target.exclude_nodes and not target.readmit_nodes:
            return self._control("release", found.target)
        excluded = self.exclude(target)
        if excluded.outcome is not CallOutcome.ACCEPTED:
            return excluded
        released = self._control("release", found.target)
        return CallResult(released.outcome, clean(f"{excluded.detail}; {released.detail}", 800))

    def _control(self, verb: str, target: str, *options: str) -> CallResult:
        return self._as_result(self._client.control(verb, target, *options))

    def _as_result(self, result: ControlResult) -> CallResult:
        outcome = CallOutcome.REFUSED if result.refused else CallOutcome.UNCLEAR
        return CallResult(CallOutcome.ACCEPTED if result.accepted else outcome, clean(result.detail, 800))

    def _as_job(self, found: SlurmJob) -> ScheduledJob:
        resubmitted = found.requeue is False and self._resubmission is not None
        return scheduled_job(found, self._refusal(found), Shape.RESUBMIT if resubmitted else None)

    def _refusal(self, found: SlurmJob) -> str | None:
        if refusal := self._not_allowed(found.job_id, found.user_id):
            return refusal
        if found.heterogeneous:
            return f"job {found.job_id} is heterogeneous: its parts cannot be requeued one by one"
        if found.target is None:
            return f"job {found.job_id} stands for several array tasks"
        if found.requeue is False and self._resubmission is None:
            return f"job {found.job_id} was submitted with --no-requeue; see --slurm-resubmit"
        if found.requeue is False and self._resubmission is not None and (why := self._resubmission.objection(found)):
            return why
        if found.must_end is not None and _is_too_late(found, found.must_end):
            return (
                f"job {found.job_id} cannot start again before its --deadline, {to_iso(found.must_end)[:19]}Z: "
                "SLURM would end it as DEADLINE; submit it again with a later one"
            )
        if found.held_by_admin:
            return f"job {found.job_id} is held by an administrator"
        return None


def _is_too_late(job: SlurmJob, must_end: float) -> bool:
    """Return whether a job that runs or has failed would find no room for another start before its deadline."""
    return job.state not in ("pending", "completing") and time.time() + _MINUTE * (job.needs_minutes or 0) > must_end
