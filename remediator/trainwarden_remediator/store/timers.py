"""Elapsed times that outlive the process. A jump of the wall clock changes none, and a restart shortens none."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import sqlalchemy as sa

from trainwarden_remediator.database.schema import incidents, timers
from trainwarden_remediator.incidents.incident_rows import OPEN
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.transactions import Transactions

# What a process that is killed forgets of a wait, at most.
_KEEP_SECONDS = 5.0


@dataclass
class _Timer:
    elapsed: float  # before `since`
    since: float  # monotonic
    detail: str


@dataclass(frozen=True)
class StoredTimer:
    """How long something had lasted when it was written down, in seconds."""

    subject: str
    kind: str
    elapsed: float
    detail: str


# Without those of incidents that have ended since they were written down.
_STORED = sa.select(timers).where(
    timers.c.subject.not_in(sa.select(incidents.c.id).where(incidents.c.state.not_in(OPEN)))
)


def stored_timers(transactions: Transactions) -> list[StoredTimer]:
    """Return the timers as they were last written down."""
    with transactions.reading() as connection:
        return [StoredTimer(**row._asdict()) for row in connection.execute(_STORED)]


class Timers:
    """Measures how long something lasts, by subject and kind, while the remediator runs.

    The time between two processes is not counted: it is unknown whether what is measured lasted. Not for several
    threads.
    """

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock
        self._kept_at = clock.monotonic()
        self._changed = False
        self._timers = {
            (each.subject, each.kind): _Timer(each.elapsed, self._kept_at, each.detail)
            for each in stored_timers(transactions)
        }

    def wait(self, subject: str, kind: str, detail: str = "") -> float:
        """Start a timer unless it runs, note the detail, and return the seconds so far."""
        timer = self._timers.get((subject, kind))
        if timer is None:
            timer = self._timers[subject, kind] = _Timer(0.0, self._clock.monotonic(), detail)
            self._changed = True
        self._changed = self._changed or timer.detail != detail
        timer.detail = detail
        return self._elapsed(timer)

    def restart(self, subject: str, *kinds: str, detail: str = "") -> None:
        """Start timers at zero, durably before this returns."""
        for kind in kinds:
            self._timers[subject, kind] = _Timer(0.0, self._clock.monotonic(), detail)
        self._keep()

    def elapsed(self, subject: str, kind: str) -> float | None:
        """Return the seconds that a timer has run; None where there is none."""
        timer = self._timers.get((subject, kind))
        return None if timer is None else self._elapsed(timer)

    def detail(self, subject: str, kind: str) -> str | None:
        """Return what was noted with a timer; None where there is none."""
        timer = self._timers.get((subject, kind))
        return None if timer is None else timer.detail

    def subjects(self, kind: str) -> list[str]:
        """Return the subjects that have a timer of a kind."""
        return [subject for subject, each in self._timers if each == kind]

    def forget(self, subject: str, *kinds: str) -> None:
        """End these timers of a subject; all of them where no kind is given."""
        ended = [key for key in self._timers if key[0] == subject and (not kinds or key[1] in kinds)]
        for key in ended:
            del self._timers[key]
        self._changed = self._changed or bool(ended)

    def keep(self) -> None:
        """Write the timers down, if one began or ended, or the last time is some seconds ago."""
        due = bool(self._timers) and self._clock.monotonic() - self._kept_at >= _KEEP_SECONDS
        if self._changed or due:
            self._keep()

    def _keep(self) -> None:
        running = [
            asdict(StoredTimer(subject, kind, self._elapsed(timer), timer.detail))
            for (subject, kind), timer in self._timers.items()
        ]
        with self._transactions.writing("timers") as connection:
            connection.execute(timers.delete())
            if running:
                connection.execute(timers.insert(), running)
        self._kept_at, self._changed = self._clock.monotonic(), False

    def _elapsed(self, timer: _Timer) -> float:
        return timer.elapsed + self._clock.monotonic() - timer.since
