"""The remediator's loop on a real scheduler, in this process: only Prometheus and Alertmanager are stand-ins."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from tests.waiting import wait_until
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import ThreadedCalls
from trainwarden_remediator.act.capture import Capturer
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.driver import Driver
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.incidents.incident import OPEN_STATES, Alert, Incident, parse_key
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.observe.snapshot import Snapshot
from trainwarden_remediator.observe.world import Firing, SystemClock, World
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import load_policy
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers
from trainwarden_remediator.worker import Worker

# Between two rounds: each asks the scheduler for all jobs.
ROUND_SECONDS = 0.4


class Killed(BaseException):
    """Kill -9, as far as a test inside one process can have it."""


@dataclass
class ScheduledTraining(ABC):
    """A job that hangs or fails at its first start, and trains on at each later one.

    Its script appends a line to `file` at each start, which no scheduler can take back, and ends as `end` has it;
    `alerts`: whether an alert fires.
    """

    run_id: str
    file: Path
    alerts: bool = field(default=True, kw_only=True)

    @property
    @abstractmethod
    def evidence(self) -> ReportedRun | None:
        """The run as Prometheus would show it."""

    def end(self, status: int) -> None:
        """Let its script end with a status."""
        written = self.file.with_suffix(".ending")
        written.write_text(str(status), encoding="utf-8")
        written.rename(self.file.with_suffix(".end"))


T = TypeVar("T", bound=ScheduledTraining)


class ActingRemediator(Generic[T]):
    """The loop, in rounds, with the readings of a real scheduler.

    Attributes:
        folder: of its database.
        at: what happens at a named point around a call.
        trainings: the runs that there are.
    """

    folder: Path
    at: dict[str, Callable[[], None]]
    trainings: list[T]
    _next_round = 0.0

    def assemble(
        self,
        driver: Driver,
        *,
        captures: Capturer | None = None,
        records: Records | None = None,
        nodes: NodeSource | None = None,
        limits: Limits | None = None,
        doubt_window: float = 8.0,
    ) -> None:
        """Open the database, and build the loop upon this driver."""
        self.folder.mkdir(exist_ok=True)
        self.clock = SystemClock()
        self.engine = open_database(self.folder)
        self.store = Store(self.engine, self.clock)
        metrics = Metrics(["prometheus", driver.name], self.clock.monotonic)
        timers = Timers(self.store.transactions, self.clock)
        policy = Policies(replace(load_policy("default"), limits=limits or Limits()), {}, mode="act")
        drivers = {driver.name: driver}
        world = World(self.clock, self, self, drivers, records or Records(None), nodes or NoNodes())
        woken = threading.Event()
        snapshot = Snapshot(world, 0.0)
        self.calls: ThreadedCalls[Answer] = ThreadedCalls(4, woken.set)
        remediator = Remediator(
            snapshot.world,
            self.store,
            metrics,
            timers,
            Actor(world, self.store, policy.checkpoint_trust, self.point),
            self.calls,
            doubt_window=doubt_window,
            repeat_after=1.0,
            verify_timeout=600,
            captures=captures,
        )
        scores = Scores(self.engine, self.clock, self)
        examiner = Examiner(snapshot.world, self.store, policy, metrics, timers, remediator.failed_again, scores)
        sweeper = Sweeper(snapshot.world, self.store, timers, doubt_window=doubt_window)
        storms = Storms(snapshot.world, self.store, limit=1000, window=600)
        self.worker = Worker(
            snapshot,
            self.store,
            examiner,
            remediator,
            metrics,
            timers,
            sweeper,
            storms,
            woken,
            interval=0.2,
            busy_interval=0.2,
        )

    def until(self, condition: Callable[[], object], seconds: float = 90.0) -> None:
        """Go on, round by round, until a condition holds, which is asked after each."""
        wait_until(lambda: self.go_on() and condition(), self.report, timeout=seconds)

    def go_on(self) -> bool:
        """Make a round if it is time for one, and say whether it was."""
        if time.monotonic() < self._next_round:
            return False
        self._next_round = time.monotonic() + ROUND_SECONDS
        self.worker.tick()
        return True

    def die_at(self, point: str, training: T) -> None:
        """Go on until this remediator is killed at a named point of a restart; its database is free then."""

        def die() -> None:
            raise Killed(point)

        # The call runs in a thread of its own, in which the exception ends; nothing is recorded after it.
        self.at[point] = die
        with pytest.raises(Killed):
            self.until(lambda: self.over(training))
        self.engine.dispose()

    def incidents(self, training: T) -> list[Incident]:
        """All incidents of a run."""
        return self.store.of_run(training.run_id)

    def over(self, training: T) -> bool:
        """Whether there was an incident, and all are over."""
        found = self.incidents(training)
        return bool(found) and not any(each.state in OPEN_STATES for each in found)

    def report(self) -> str:
        """All that was decided and done, for the message of a test that fails."""
        log = [
            f"{event.time:.1f} {event.state} {event.detail}"
            for _, events in self.store.with_events()
            for event in events
        ]
        return "\n".join([*map(str, self.trainings), *log, *map(str, self.store.pending())])

    def close(self) -> None:
        """End all; the jobs go on."""
        self.calls.finish()
        self.engine.dispose()

    def firing(self) -> Firing:
        """The AlertSource: each run stalls, or has failed, at its first attempt."""
        found = []
        for each in self.trainings:
            seen = each.evidence
            key = parse_key(seen.attempt_key) if seen is not None else None
            if seen is None or key is None or seen.attempt or not each.alerts:
                continue
            labels = {
                "alertname": "TrainRunFailed" if seen.state == "failed" else "TrainRunStalled",
                "run_id": each.run_id,
                "job_id": key.job_id,
                "attempt": str(seen.attempt),
                "scheduler": key.scheduler,
                "failure_mode": "crash" if seen.state == "failed" else "stall",
                "remediate": "true",
            }
            found.append(Alert(labels, 1_800_000_000.0))
        return found

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        """The RunSource."""
        found = {each.run_id: each.evidence for each in self.trainings}
        return {run_id: found.get(run_id) for run_id in run_ids}

    def restarts(self, _database: str) -> dict[str, float]:
        """No other remediator is on record."""
        return {}

    def point(self, name: str) -> None:
        """Do what is to happen at a named point, once."""
        if name in self.at:
            self.at.pop(name)()


def settle(remediators: Sequence[ActingRemediator[T]], seconds: float = 150.0) -> None:
    """Go on with all at once until the incidents of each run are over. What is not over in time, its test reports."""
    left = list(remediators)

    def probe() -> bool:
        for each in remediators:
            if each in left and each.go_on() and all(each.over(training) for training in each.trainings):
                left.remove(each)
        return not left

    with suppress(AssertionError):
        wait_until(probe, timeout=seconds)
