"""The interface of a scheduler. Every reading has three values: the job, absent, unknown."""

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


@dataclass(frozen=True)
class Absent:
    """The scheduler answered and does not list the job. That is not a failure of the job.

    `ended` is how it ended by the scheduler's accounting, in the scheduler's words; empty where that is not known.
    """

    ended: str = ""


Reading = ScheduledJob | Absent | Unknown


@dataclass(frozen=True)
class RestartTarget:
    """One start of one job, and the incident that is to replace it; the incident's id is the token of the new start.

    Attributes:
        exclude_nodes: that the new start must avoid: all of those that are excluded for the run now.
        readmit_nodes: that the job avoids because of an earlier incident, and need not any more.
    """

    incident: str
    run_id: str
    job_id: str
    generation: int
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    exclude_nodes: tuple[str, ...] = ()
    readmit_nodes: tuple[str, ...] = ()


class CallOutcome(enum.Enum):
    """How a call went. ACCEPTED and REFUSED are the scheduler's own answers; all else is UNCLEAR."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class CallResult:
    """The outcome of one call. `detail`, for the decision log, is the call and its answer."""

    outcome: CallOutcome
    detail: str


class Driver(Protocol):
    """One scheduler. `two_phase`: ending a start and giving the next are calls of their own."""

    name: str
    two_phase: bool

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

    def prepare(self, target: RestartTarget) -> CallResult:
        """End this start as of this snapshot, and hold the next. Never called where `two_phase` is false."""

    def exclude(self, target: RestartTarget) -> CallResult:
        """Change the nodes that a job which waits must avoid, and read it back.

        ACCEPTED also where there is nothing to change; REFUSED where the scheduler has no such thing, or no such node.
        """

    def commit(self, target: RestartTarget) -> CallResult:
        """Give the next start, without the excluded nodes of the target. Repeating the call is idempotent."""


class RestartProgress(enum.Enum):
    """How far the replacement of one start has come, by the scheduler's answer."""

    UNKNOWN = "the scheduler does not answer"
    BUSY = "the job is in between"
    UNTOUCHED = "the old start is still there"
    READY = "the scheduler can give the next start"
    STARTED = "the next start has been given"
    GONE = "the job is over or is not ours any more"
    STUCK = "the job is held, and not by us"


def progress(reading: Reading, target: RestartTarget, *, two_phase: bool) -> RestartProgress:
    """Compare a reading with the start that is to be replaced."""
    if isinstance(reading, Unknown):
        return RestartProgress.UNKNOWN
    if isinstance(reading, Absent) or reading.run_id != target.run_id or reading.generation < target.generation:
        return RestartProgress.GONE
    if target.incident in reading.tokens:
        return RestartProgress.STARTED
    if reading.generation == target.generation:
        return _of_old_start(reading, two_phase=two_phase)
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
