"""What a check can find against an action on an attempt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """Something is unknown: do nothing, and decide again later."""

    reason: str


@dataclass(frozen=True)
class Held(Wait):
    """A person has frozen or planned it so: nobody is paged for that."""


@dataclass(frozen=True)
class Refuse:
    """The facts rule out any action on this attempt."""

    reason: str


@dataclass(frozen=True)
class Barred(Refuse):
    """The remediator may not restart the job, or need not: its user reads why in the journal of the run."""


@dataclass(frozen=True)
class NotNow(Refuse):
    """A decision must not be carried out; another is made if the alert goes on firing."""


@dataclass(frozen=True)
class Contradiction(Wait):
    """Two sources contradict each other: a person has to find out which is right.

    `by_facts`: whether the attempt works at all. A person may approve that it is restarted.
    """

    by_facts: bool = False


@dataclass(frozen=True)
class Lost(Refuse):
    """The attempt has failed, and the remediator cannot bring it back: a person has to."""


@dataclass(frozen=True)
class StartedAgain(Refuse):
    """The scheduler has replaced this start already, for the remediator or for another client."""
