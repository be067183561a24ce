"""What the remediator asks of a scheduler, and how the answers are read. Every answer is three-valued."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden_remediator.unknown import Unknown


class Standing(enum.Enum):
    """A job's state, as far as it matters here."""

    RUNNING = "running"  # its processes may live; it can be ended and started again
    ENDING = "ending"  # on its way out or in between; nothing may start beside it
    HELD = "held"  # waits, and will not start by itself
    WAITING = "waiting"  # waits for its turn and will start by itself
    FAILED = "failed"  # ended by a failure; can be started again
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    OTHER = "other"  # suspended, revoked…: a person's or the scheduler's business


@dataclass(frozen=True)
class Job:
    """One job. `run_id` is what its mark says, `generation` how often it was started again, `state` the raw state.

    `refusal` is why this remediator may not touch it at all; `tokens` maps our intents to the starts that they caused.
    """

    job_id: str
    run_id: str | None
    generation: int
    standing: Standing
    state: str
    refusal: str | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Absent:
    """The scheduler answered, and does not know the job. That is not a failure of the job."""


Reading = Job | Absent | Unknown


@dataclass(frozen=True)
class Subject:
    """One start of one job, and the intent to replace it. The intent's id is the token."""

    intent: str
    run_id: str
    job_id: str
    generation: int
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Outcome(enum.Enum):
    """How a call went. Only ACCEPTED and REFUSED are the scheduler's own words."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Answer:
    """The outcome of one call and, for the decision log, what was called and what came back."""

    outcome: Outcome
    detail: str


class Driver(Protocol):
    """One scheduler. `two_phase` tells whether ending and starting are calls of their own."""

    name: str
    two_phase: bool

    def refresh(self) -> None:
        """Forget what was read; the next reading is a fresh one."""

    def job(self, job_id: str) -> Reading:
        """Read one job."""

    def prepare(self, subject: Subject) -> Answer:
        """End this start and hold the next. Never called where `two_phase` is false."""

    def commit(self, subject: Subject) -> Answer:
        """Start the next one. May be repeated: it starts at most one."""


class Progress(enum.Enum):
    """How far the replacement of one start has come, by the scheduler's own word."""

    UNKNOWN = "the scheduler does not answer"
    BUSY = "the job is in between"
    UNTOUCHED = "the old start is still there"
    READY = "the next start waits for us"
    STARTED = "the next start has been given"
    GONE = "the job is over or is not ours any more"
    STUCK = "the job is held, and not by us"


def progress(reading: Reading, subject: Subject, *, two_phase: bool) -> Progress:
    """Compare what the scheduler says now with the start that the intent is about."""
    if isinstance(reading, Unknown):
        return Progress.UNKNOWN
    if isinstance(reading, Absent) or reading.run_id != subject.run_id or reading.generation < subject.generation:
        return Progress.GONE
    if subject.intent in reading.tokens:
        return Progress.STARTED
    if reading.generation == subject.generation:
        return _of_old_start(reading, two_phase=two_phase)
    if reading.standing is Standing.CANCELLED:
        return Progress.GONE
    if reading.standing is Standing.ENDING:
        return Progress.BUSY
    if reading.standing is Standing.HELD:
        ours = reading.generation == subject.generation + 1 and reading.refusal is None
        return Progress.READY if ours else Progress.STUCK
    return Progress.STARTED


def _of_old_start(job: Job, *, two_phase: bool) -> Progress:
    if job.standing in (Standing.COMPLETED, Standing.CANCELLED):
        return Progress.GONE
    if job.standing in (Standing.RUNNING, Standing.FAILED):
        return Progress.UNTOUCHED if two_phase else Progress.READY
    return Progress.BUSY
