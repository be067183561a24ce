"""Readings of Prometheus and of the schedulers, counted by whether they gave an answer."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden_remediator.errors import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trainwarden_remediator.drivers.driver import CallResult, Driver, Reading, RestartTarget, ScheduledJob
    from trainwarden_remediator.observe.evidence import Evidence, RunSource


log = logging.getLogger(__name__)

# A source that gives no answer for this long leaves the remediator unable to judge.
_UNABLE_SECONDS = 60.0
# One that is not read any more is not needed.
_UNREAD_SECONDS = 120.0
# What is read of a scheduler about one job begins so.
_ONE_JOB = "job "
# Between two lines of the log about one that goes on giving no answer.
_REPEAT_SECONDS = 60.0


@dataclass
class _Missing:
    since: float
    last: float
    reason: str


@dataclass
class _Outage:
    since: float
    logged: float
    failing: dict[str, float] = field(default_factory=dict)  # what could not be read, and when that was last tried


class OutageLog:
    """Logs that a source gives no answer: at once, then once a minute with the duration, and when that is over.

    It is over when all that could not be read has been, or is not asked for any more: where one of several readings of
    each round fails, that is one outage, not one in each round. Not for several threads at once.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._outages: dict[str, _Outage] = {}

    def read(self, source: str, problem: str | None, what: str = "") -> None:
        """Note a reading of a source; `what` was read of it, `problem` is why it gave no answer."""
        now = self._monotonic()
        outage = self._outages.get(source)
        if outage is not None:
            outage.failing = {each: last for each, last in outage.failing.items() if now - last <= _UNREAD_SECONDS}
        if problem is None:
            self._answered(source, outage, what, now)
        elif outage is None or not outage.failing:
            self._outages[source] = _Outage(now, now, {what: now})
            log.warning("%s gives no answer: %s", source, problem)
        else:
            outage.failing[what] = now
            if now - outage.logged >= _REPEAT_SECONDS:
                outage.logged = now
                log.warning("%s has given no answer for %.0f s: %s", source, now - outage.since, problem)

    def _answered(self, source: str, outage: _Outage | None, what: str, now: float) -> None:
        if outage is None:
            return
        outage.failing.pop(what, None)
        if not outage.failing:
            del self._outages[source]
            log.info("%s answers again after %.0f s", source, now - outage.since)


class Answers:
    """Which sources give no answer, and since when; for any thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # By source and what was read of it. A job that cannot be read while others can is no outage of its scheduler.
        self._missing: dict[tuple[str, str], _Missing] = {}
        self._log = OutageLog(monotonic)

    def read(self, source: str, problem: str | None, what: str = "") -> None:
        """Note a reading of a source; `what` was read of it, `problem` is why it gave no answer."""
        now, key = self._monotonic(), (source, "" if what.startswith(_ONE_JOB) else what)
        with self._lock:
            missing = self._missing.get(key)
            if problem is None:
                self._missing.pop(key, None)
            elif missing is None or now - missing.last > _UNREAD_SECONDS:
                self._missing[key] = _Missing(now, now, problem)
            else:
                missing.last, missing.reason = now, problem
            self._log.read(source, problem, what)

    def missing(self) -> dict[str, str]:
        """Return the sources for want of which the remediator is unable to judge, each with the last reason."""
        now = self._monotonic()
        with self._lock:
            return {
                source: each.reason
                for (source, _), each in self._missing.items()
                if now - each.since >= _UNABLE_SECONDS and now - each.last <= _UNREAD_SECONDS
            }


def _problem(found: object) -> str | None:
    return found.reason if isinstance(found, Unknown) else None


class CountedRuns:
    """Reads runs from another source; `count` gets the source, why it gave no answer or None, and what was read."""

    def __init__(self, runs: RunSource, count: Callable[[str, str | None, str], None]) -> None:
        self._runs = runs
        self._count = count

    def runs(self, run_ids: Collection[str]) -> Mapping[str, Evidence]:
        """Return the runs; they count as one reading."""
        found = self._runs.runs(run_ids)
        problems = (_problem(each) for each in found.values())
        self._count("prometheus", next(filter(None, problems), None), "runs")
        return found

    def restarts(self, database: str) -> Mapping[str, float] | Unknown:
        """Return how many restarts of each run were ever on record."""
        found = self._runs.restarts(database)
        self._count("prometheus", _problem(found), "restarts")
        return found


class CountedDriver:
    """Reads and calls a scheduler by another driver, and counts the readings."""

    def __init__(self, driver: Driver, count: Callable[[str, str | None, str], None]) -> None:
        self._driver = driver
        self._count = count
        self.name = driver.name
        self.shape = driver.shape

    def snapshot(self, job_ids: Collection[str] = ()) -> CountedDriver:
        """Return a driver that reads anew, and counts."""
        return CountedDriver(self._driver.snapshot(job_ids), self._count)

    def job(self, job_id: str) -> Reading:
        """Read one job."""
        found = self._driver.job(job_id)
        self._count(self.name, _problem(found), f"{_ONE_JOB}{job_id}")
        return found

    def jobs(self) -> Sequence[ScheduledJob] | Unknown:
        """Return every job that is marked with a run."""
        found = self._driver.jobs()
        self._count(self.name, _problem(found), "jobs")
        return found

    def boot(self) -> str | Unknown:
        """Return when the scheduler's controller was started."""
        return self._driver.boot()

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        """Return what would keep this remediator from ending and starting a job."""
        return self._driver.obstacles(job)

    def submitted(self, target: RestartTarget) -> Sequence[ScheduledJob] | Unknown:
        """Return the jobs that carry the token of the target."""
        found = self._driver.submitted(target)
        self._count(self.name, _problem(found), f"jobs of {target.incident}")
        return found

    def prepare(self, target: RestartTarget) -> CallResult:
        """End this start and hold the next."""
        return self._driver.prepare(target)

    def exclude(self, target: RestartTarget) -> CallResult:
        """Change the nodes that a job must avoid."""
        return self._driver.exclude(target)

    def commit(self, target: RestartTarget) -> CallResult:
        """Give the next start."""
        return self._driver.commit(target)

    def discard(self, target: RestartTarget) -> CallResult:
        """Cancel a submitted job that is held."""
        return self._driver.discard(target)
