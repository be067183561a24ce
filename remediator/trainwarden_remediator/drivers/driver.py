"""The interface of a scheduler. Every reading has three values: the job, absent, unknown.

A driver replaces one start of a job by the next in one of four shapes, and all take the same way through the states of
an incident. `prepare` ends the old start; nothing new lives when it is done (PREPARED). That the next start may be
given is durable (COMMITTED) before `commit` gives it. Each call is on record before it is made, may be repeated, and
its answer proves nothing: what the scheduler shows next decides (`restart_progress`).

============ ===================================== ============================================ ==================
shape        `prepare`                             `commit`                                     what may lie about
============ ===================================== ============================================ ==================
ONE_CALL     is not called                         ends the start, gives the next               nothing
REQUEUE      ends the start, holds the next        releases it                                  a held start
SUBMIT       ends the job                          submits a job under an id made of `attempt`  nothing
                                                   and `incident`, which starts at once
RESUBMIT     ends the job                          without a `successor`: submits a job, held;  held jobs with the
                                                   with one: discards all others, releases it   token
============ ===================================== ============================================ ==================

The incident's id is the token of the start that it gives. With SUBMIT and RESUBMIT the next start is a new job, which
carries the token (`ScheduledJob.submission`), and `submitted` finds it by that after a lost answer. Its id is stored
with the incident (`Incident.successor`) when it is first known, before anything is released: of several jobs with one
token only the stored one is ever released, and the sweeper discards the others. A job that has ended by itself is not
prepared. A job that `prepare` has ended is CANCELLED: that this was no user is seen by the call on record alone
(`RestartTarget.ended`), so where a user cancels a job within the window of doubt of a stop, it counts as the stop's.

A driver for a scheduler without holds is SUBMIT: `prepare` asks for the stop, `job` shows ENDING until the job is
terminal, `commit` submits under the deterministic id and takes "exists already" for success, `submitted` reads that id.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden_remediator.errors import Unknown


class JobState(enum.Enum):
    """A job's state, as far as it matters here."""

    RUNNING = "running"  # its processes may live; it can be ended and started again
    ENDING = "ending"  # between two states; nothing may start beside it
    HELD = "held"  # waits, and will not start by itself
    WAITING = "waiting"  # waits in the queue and will start by itself
    FAILED = "failed"  # ended by a failure; can be started again
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"  # ended by the scheduler for others' sake: preempted, past its deadline, revoked
    OTHER = "other"  # suspended…: left to its user and the scheduler


class Shape(enum.Enum):
    """How one start of a job is replaced by the next; see the module."""

    ONE_CALL = "one call"
    REQUEUE = "requeue"
    SUBMIT = "submit"
    RESUBMIT = "resubmit"

    @property
    def gives_new_job(self) -> bool:
        """Whether the next start is a job of its own, with another id."""
        return self in (Shape.SUBMIT, Shape.RESUBMIT)


@dataclass(frozen=True)
class ScheduledJob:
    """One job of a scheduler.

    Attributes:
        run_id: the run that the job is marked with.
        generation: how often it was started again.
        scheduler_state: its state as the scheduler names it.
        refusal: why this remediator may not touch it at all.
        tokens: the starts that incidents of ours caused, by the incident's id.
        user: uid that it runs as; None where users are not told apart.
        account: that it is charged to, where there are accounts.
        waits_for_jobs: it waits for other jobs to end, and does not start while they wait themselves.
        excluded_nodes: that it must not start on; None where that cannot be read.
        hold_of: the incident, by its id, that has ended the start before this one, as the job itself says.
        nodes: that it runs on.
        held_by_requeue: its hold is the one that the remediator's call leaves, and no later one.
        waits_because: why it waits, in the scheduler's words; empty where it does not, or no reason is given.
        never_starts: it waits for what does not come by itself: no node may run it, or a limit forbids it.
        started: when its present start began, by the scheduler's clock; None where it has none, or states no time.
        shape: how its start can be replaced, where that is not as the driver's `shape` says.
        submission: the incident, by its id, that has submitted it, as the job itself says.
    """

    job_id: str
    run_id: str | None
    generation: int
    state: JobState
    scheduler_state: str
    refusal: str | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)
    held_by_requeue: bool = False
    user: int | None = None
    hold_of: str | None = None
    excluded_nodes: tuple[str, ...] | None = ()
    waits_for_jobs: bool = False
    account: str = ""
    nodes: tuple[str, ...] = ()
    started: float | None = None
    waits_because: str = ""
    never_starts: bool = False
    shape: Shape | None = None
    submission: str | None = None


@dataclass(frozen=True)
class Absent:
    """The scheduler answered and does not list the job. That is not a failure of the job.

    `ended` is how it ended by the scheduler's accounting, in the scheduler's words; empty where that is not known.
    `lost` is how a scheduler that forgets no job by itself has lost it, and what a person can do; else empty.
    """

    ended: str = ""
    lost: str = ""


Reading = ScheduledJob | Absent | Unknown


@dataclass(frozen=True)
class RestartTarget:
    """One start of one job, and the incident that is to replace it; the incident's id is the token of the new start.

    Attributes:
        exclude_nodes: that the new start must avoid: all of those that are excluded for the run now.
        readmit_nodes: that the job avoids because of an earlier incident, and need not any more.
        shape: how the start is replaced.
        attempt: the number of the attempt that is replaced, where it is known.
        ended: a call of the remediator has ended the start: CANCELLED is not a user's.
        successor: the job that is to be the next start, once that is known; empty before.
    """

    incident: str
    run_id: str
    job_id: str
    generation: int
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    exclude_nodes: tuple[str, ...] = ()
    readmit_nodes: tuple[str, ...] = ()
    shape: Shape = Shape.REQUEUE
    attempt: int | None = None
    ended: bool = False
    successor: str = ""


class CallOutcome(enum.Enum):
    """How a call went. ACCEPTED and REFUSED are the scheduler's own answers; all else is UNCLEAR."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class CallResult:
    """The outcome of one call. `detail`, for the decision log, is the call and its answer.

    `job_id` is the job that was submitted, where the call has submitted one and its answer names it.
    """

    outcome: CallOutcome
    detail: str
    job_id: str = ""


class Driver(Protocol):
    """One scheduler. `shape`: how it replaces starts of all jobs that do not say otherwise."""

    name: str
    shape: Shape

    def snapshot(self, job_ids: Collection[str] = ()) -> Driver:
        """Return the same driver for one thread; it reads nothing from before this call, and the jobs named at once."""

    def job(self, job_id: str) -> Reading:
        """Return one job as of this snapshot, which reads it once."""

    def jobs(self) -> Sequence[ScheduledJob] | Unknown:
        """Return every job that is marked with a run; unknown where the list may lack one."""

    def boot(self) -> str | Unknown:
        """Return when the scheduler's controller was started, in its own words: another text after each start of it.

        Empty where the scheduler forgets nothing that it has acknowledged.
        """

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        """Return what would keep this remediator from ending and starting a job, as far as the scheduler shows it."""

    def submitted(self, target: RestartTarget) -> Sequence[ScheduledJob] | Unknown:
        """Return the jobs that carry the token of the target, oldest first, those that are over included.

        Empty where the shape gives no new job; unknown where one may be missing.
        """

    def prepare(self, target: RestartTarget) -> CallResult:
        """End this start as of this snapshot, and hold the next where the shape is REQUEUE; not called of ONE_CALL."""

    def exclude(self, target: RestartTarget) -> CallResult:
        """Change the nodes that a job which waits must avoid, and read it back.

        ACCEPTED also where there is nothing to change; REFUSED where the scheduler has no such thing, or no such node.
        """

    def commit(self, target: RestartTarget) -> CallResult:
        """Give the next start, without the excluded nodes of the target. Repeating the call is idempotent.

        Where the shape is RESUBMIT and the target has no successor, submit a job that is held instead: repeating that
        may leave another one.
        """

    def discard(self, target: RestartTarget) -> CallResult:
        """Cancel the successor of the target, which was submitted, is held, and must never start.

        REFUSED where the scheduler holds no submitted jobs. A job that is not held any more stays.
        """


class RestartProgress(enum.Enum):
    """How far the replacement of one start has come, by the scheduler's answer."""

    UNKNOWN = "the scheduler does not answer"
    BUSY = "the job is in between"
    UNTOUCHED = "the old start is still there"
    READY = "the scheduler can give the next start"
    STARTED = "the next start has been given"
    GONE = "the job is over or is not ours any more"
    STUCK = "the job is held, and not by us"


def restart_progress(driver: Driver, target: RestartTarget) -> RestartProgress:
    """Compare what a driver reads with the start that is to be replaced."""
    old = driver.job(target.job_id)
    if not target.shape.gives_new_job:
        return progress(old, target)
    submitted = driver.submitted(target)
    return RestartProgress.UNKNOWN if isinstance(submitted, Unknown) else new_job_progress(old, submitted, target)


def progress(reading: Reading, target: RestartTarget) -> RestartProgress:
    """Compare a reading with the start that is to be replaced by another of the same job."""
    if isinstance(reading, Unknown):
        return RestartProgress.UNKNOWN
    if isinstance(reading, Absent) or reading.run_id != target.run_id or reading.generation < target.generation:
        return RestartProgress.GONE
    if target.incident in reading.tokens:
        return RestartProgress.STARTED
    if reading.generation == target.generation:
        return _of_old_start(reading, two_phase=target.shape is not Shape.ONE_CALL)
    if reading.state in (JobState.CANCELLED, JobState.WITHDRAWN):
        return RestartProgress.GONE
    if reading.state is JobState.ENDING:
        return RestartProgress.BUSY
    if reading.state is JobState.HELD:
        # The hold of a person lacks SLURM's description of a requeued job, and that of an administrator its reason. A
        # user's hold that was laid upon ours leaves no trace: SLURM has one hold.
        ours = reading.generation == target.generation + 1 and reading.refusal is None and reading.held_by_requeue
        return RestartProgress.READY if ours else RestartProgress.STUCK
    return RestartProgress.STARTED


def _of_old_start(job: ScheduledJob, *, two_phase: bool) -> RestartProgress:
    if job.state in (JobState.COMPLETED, JobState.CANCELLED, JobState.WITHDRAWN):
        return RestartProgress.GONE
    if job.state in (JobState.RUNNING, JobState.FAILED):
        return RestartProgress.UNTOUCHED if two_phase else RestartProgress.READY
    return RestartProgress.BUSY


def new_job_progress(old: Reading, submitted: Sequence[ScheduledJob], target: RestartTarget) -> RestartProgress:
    """Compare the old job and those that were submitted with the start that is to be replaced by a new job."""
    new = successor_of(submitted, target)
    if new is None:
        return RestartProgress.GONE if target.successor else _of_old_job(old, target)
    if new.state is JobState.HELD and new.refusal is not None:
        return RestartProgress.STUCK  # an administrator holds it
    if new.state is JobState.HELD:
        # The old job may live again where the controller has forgotten that it had ended.
        return _of_old_job(old, target)
    return RestartProgress.GONE if new.state is JobState.CANCELLED else RestartProgress.STARTED


def successor_of(submitted: Sequence[ScheduledJob], target: RestartTarget) -> ScheduledJob | None:
    """Return the job that is the next start or is to be it: one that has started, else the stored one, else a held."""
    of_choice = sorted(submitted, key=lambda job: job.job_id != target.successor)
    started = (job for job in of_choice if job.state not in (JobState.HELD, JobState.CANCELLED))
    if target.successor:
        return next(started, None) or next((job for job in of_choice if job.job_id == target.successor), None)
    held = (job for job in of_choice if job.state is JobState.HELD)
    return next(started, None) or next(held, None) or next(iter(of_choice), None)


def _of_old_job(reading: Reading, target: RestartTarget) -> RestartProgress:
    """Return READY once the old job is over, and another may be submitted."""
    if isinstance(reading, Unknown):
        return RestartProgress.UNKNOWN
    if isinstance(reading, Absent):  # the scheduler forgets jobs some time after their end
        return RestartProgress.READY if target.ended else RestartProgress.GONE
    if reading.run_id != target.run_id or reading.generation != target.generation:
        return RestartProgress.GONE
    if reading.state is JobState.RUNNING:
        return RestartProgress.UNTOUCHED
    if reading.state is JobState.FAILED or (reading.state is JobState.CANCELLED and target.ended):
        return RestartProgress.READY
    is_over = reading.state in (JobState.COMPLETED, JobState.CANCELLED, JobState.WITHDRAWN)
    return RestartProgress.GONE if is_over else RestartProgress.BUSY
