"""The interface of a scheduler. Every reading has three values: the job, absent, unknown."""

from __future__ import annotations

import enum
from collections.abc import Mapping
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
    OTHER = "other"  # suspended, revoked…: left to its user and the scheduler


@dataclass(frozen=True)
class ScheduledJob:
    """One job of a scheduler.

    Attributes:
        run_id: the run that the job is marked with.
        generation: how often it was started again.
        scheduler_state: its state as the scheduler names it.
        refusal: why this remediator may not touch it at all.
        tokens: the starts that incidents of ours caused, by the incident's id.
    """

    job_id: str
    run_id: str | None
    generation: int
    state: JobState
    scheduler_state: str
    refusal: str | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Absent:
    """The scheduler answered and does not list the job. That is not a failure of the job."""


Reading = ScheduledJob | Absent | Unknown


@dataclass(frozen=True)
class RestartTarget:
    """One start of one job, and the incident that is to replace it; the incident's id is the token of the new start."""

    incident: str
    run_id: str
    job_id: str
    generation: int
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)


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

    def refresh(self) -> None:
        """Discard what was read; the next reading is a fresh one."""

    def job(self, job_id: str) -> Reading:
        """Read one job."""

    def prepare(self, target: RestartTarget) -> CallResult:
        """End this start and hold the next. Never called where `two_phase` is false."""

    def commit(self, target: RestartTarget) -> CallResult:
        """Give the next start. A repeated call gives no second one."""


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
    if reading.state is JobState.CANCELLED:
        return RestartProgress.GONE
    if reading.state is JobState.ENDING:
        return RestartProgress.BUSY
    if reading.state is JobState.HELD:
        ours = reading.generation == target.generation + 1 and reading.refusal is None
        return RestartProgress.READY if ours else RestartProgress.STUCK
    return RestartProgress.STARTED


def _of_old_start(job: ScheduledJob, *, two_phase: bool) -> RestartProgress:
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        return RestartProgress.GONE
    if job.state in (JobState.RUNNING, JobState.FAILED):
        return RestartProgress.UNTOUCHED if two_phase else RestartProgress.READY
    return RestartProgress.BUSY
