"""What a report holds, whatever it was read from. Times are Unix seconds, texts are what others wrote: escape them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

GOOD, BAD, WARN, CALM = "good", "bad", "warn", "calm"


@dataclass(frozen=True)
class Span:
    """Something that lasted; `end` is that of the report where it has not ended."""

    lane: str
    name: str
    start: float
    end: float
    tone: str = CALM


@dataclass(frozen=True)
class Moment:
    """Something that happened."""

    time: float
    what: str
    detail: str = ""
    tone: str = CALM


@dataclass(frozen=True)
class Line:
    """One line of a plot: (x, y), x is Unix seconds or, in a plot by step, the step."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """A plot. `unit` is bytes, bytes/s, seconds, ratio, watts, or any text that stands behind a number."""

    title: str
    question: str
    unit: str
    lines: Sequence[Line]
    by_step: bool = False


@dataclass(frozen=True)
class Decision:
    """A decision of the remediator, with what it did: (time, state, detail)."""

    title: str
    reason: str
    steps: Sequence[tuple[float, str, str]] = ()
    moments: Sequence[str] = ()
    time: float | None = None


@dataclass(frozen=True)
class Evidence:
    """A text that supports the verdict, as it was found."""

    title: str
    text: str


@dataclass
class Story:
    """All that a report shows of a run.

    Attributes:
        status: as `trainwarden status` has it.
        verdict: one sentence, the headline.
        course: what happened, in a few sentences under the headline.
        advice: what a person should do; empty where there is nothing to do.
        facts: name and text, the most important first.
        attempts: the cells of the table of attempts, by the names in `ATTEMPT_COLUMNS`.
        costs: name and text.
        missing: what could not be read, and why.
    """

    run_id: str
    made: float
    status: str
    verdict: str
    tone: str
    course: list[str] = field(default_factory=list)
    advice: str = ""
    start: float | None = None
    end: float | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    attempts: list[Sequence[str]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    costs: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


ATTEMPT_COLUMNS = ("Attempt", "Status", "Started", "Duration", "Steps", "Loss", "Failure")
TONES: Mapping[str, str] = {
    "SUCCEEDED": GOOD,
    "RUNNING": CALM,
    "PENDING": CALM,
    "FAILED": BAD,
    "TIMED_OUT": BAD,
    "LOST": BAD,
    "STALLED": BAD,
    "WARNING": WARN,
    "CANCELLED": WARN,
}


def clock_text(time: float | None, *, day: bool = True) -> str:
    """Return a time in UTC; "-" if it is unknown."""
    if time is None:
        return "-"
    try:
        return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "-"
