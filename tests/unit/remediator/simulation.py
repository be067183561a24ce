"""A small world in memory: jobs, their scheduler, Prometheus and Alertmanager, and a log of what really started.

The truth about jobs is that of simulated_cluster.py, the faults of calls are those of fake_driver.py. The remediator
can die at every named point and comes back from its database.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Generic, TypeVar

import pytest
import sqlalchemy as sa

from tests.unit.remediator.fake_driver import FakeDriver
from tests.unit.remediator.reported_runs import ReportedRuns
from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, RUN, Cluster, FakeClock
from tests.unit.remediator.simulated_database import Memory, SimulatedDatabase
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import Calls
from trainwarden_remediator.act.capture import Captured
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.drivers.driver import (
    JobState,
    Shape,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.incidents.price import NoPrices, PriceSource
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.cpu_time import CpuSource, NoCpu
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes
from trainwarden_remediator.observe.readings import CountedDriver, CountedRuns
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.observe.snapshot import Snapshot
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.policies.policy import Policy, load_policy, shipped
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.switches import resume
from trainwarden_remediator.store.timers import Timers
from trainwarden_remediator.worker import Worker

T = TypeVar("T")


class Crash(BaseException):
    """Kill -9, as far as a test inside one process can have it: nothing in the product catches it."""


class FakeCaptures:
    """A run that takes some seconds to show where its ranks stand; its file system may not answer."""

    timeout = 30.0

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._begun: dict[str, float] = {}
        self.begins = 0
        self.seconds = 0.0
        self.meanwhile: Callable[[], None] | None = None
        self.found = Captured("1 rank in all_reduce at train.py:8", "rank 1 (n2): no answer", "/captures/i")

    def described(self, _incident: str) -> bool:
        """The scheduler takes its time to describe the job; `meanwhile` happens once."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return meanwhile is not None

    def result(self, incident: Incident, *, running: bool) -> Captured | None:
        if incident.id not in self._begun:
            self.begins += 1
        since = self._begun.setdefault(incident.id, self._clock.elapsed)
        return self.found if not running or self._clock.elapsed - since >= self.seconds else None

    def forget(self, incident_id: str) -> None:
        self._begun.pop(incident_id, None)

    def restart(self) -> None:
        """The process died, and its threads with it."""
        self._begun.clear()


@functools.cache
def _shipped_policies() -> dict[str, Policy]:
    return {name: load_policy(name) for name in shipped()}


class CallsAtOnce(Generic[T]):
    """Makes each call when it begins, in the same thread."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._results: dict[str, T | Exception] = {}

    def start(self, incident: str, call: Callable[[], T]) -> None:
        self._results[incident] = call()
        self._done()

    def room(self) -> bool:
        return True

    def under_way(self, incident: str) -> bool:
        return incident in self._results

    def take(self) -> dict[str, T | Exception]:
        taken, self._results = self._results, {}
        return taken

    def finish(self) -> None:
        """Nothing is under way."""


class Simulation(ReportedRuns):
    """The remediator in that world. It dies at the named point that `crash_at` counts to, or `crash_at_name` names.

    Args:
        folder: of the database.
        two_phase: how the scheduler restarts jobs.
        shape: how it restarts them, where that is by new jobs.
        policy: of all runs.
        storm_runs: so many may be restarted within ten minutes.
        runs: how many there are, each with a job and a node of its own; `cluster` is the first.
        canary_users: uids whose job may be the canary.
        calls: makes the calls to the scheduler, given what wakes the loop; by default each at once, so that what nobody
            has changed can be read from memory, and the database is opened once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        two_phase: bool = True,
        policy: str | Policy = "default",
        runs: int = 1,
        canary_users: frozenset[int] = frozenset(),
        storm_runs: int = 5,
        calls: Callable[[Callable[[], None]], Calls[Answer]] = CallsAtOnce,
        shape: Shape | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._database: SimulatedDatabase | None = None
        self._remember = calls is CallsAtOnce
        self._memory: Memory | None = None
        default = _shipped_policies()[policy] if isinstance(policy, str) else policy
        self.policies = Policies(default, _shipped_policies(), mode="act")
        self.runs_dir: Path | None = None
        self.nodes: NodeSource = NoNodes()
        self.prices: PriceSource = NoPrices()
        self.cpu: CpuSource = NoCpu()
        clock = FakeClock()
        clusters = [
            Cluster(two_phase, clock, str(17 + number), f"run-{1 + number}", (f"n{1 + number}",))
            for number in range(runs)
        ]
        super().__init__(clock, clusters)
        for each in self.clusters:
            each.shape = shape
        self.cluster = self.clusters[0]
        self.driver = FakeDriver(self.clusters, self.durable)
        self._calls = calls
        self.captures = FakeCaptures(self.clock)
        self._storm_runs = storm_runs
        self._canary_users = canary_users
        # Who owns the records of runs, by run, where that is seen.
        self.owners: dict[str, int] = {}
        # What became of each incident, and when, by the clock that does not jump.
        self.states: list[tuple[float, str, State]] = []
        self.remembered: dict[str, float] = {}
        self.points: list[str] = []
        self.crash_at: int | None = None
        self.crash_at_name: str | None = None
        self.crashes = 0
        # What drains and resumes nodes, of a store.
        self.drain: Callable[[Store], Callable[[], object]] = lambda _store: lambda: None
        self.restart()

    def restart(self) -> None:
        """A new process on the old database."""
        if self._database is None or not self._remember:
            self.close()
            self._database = SimulatedDatabase(self.folder)
        engine = self.engine
        self.captures.restart()
        self.store = Store(engine, self.clock, self._point)
        self.store.note_message = self._note_state
        self._memory = Memory(self.store, self._database) if self._remember else None
        timers = Timers(self.store.transactions, self.clock)
        self.metrics = metrics = Metrics(["prometheus", "sim"], self.clock.monotonic)
        drivers = {"sim": CountedDriver(self.driver, metrics.read)}
        world = World(
            self.clock,
            self,
            CountedRuns(self, metrics.read),
            drivers,
            _Records(self.runs_dir, self.owners),
            self.nodes,
            self.prices,
            self._canary_users,
            self.cpu,
        )
        woken = threading.Event()
        snapshot = Snapshot(world, 15)
        self.scores = Scores(engine, self.clock, world.runs)
        remediator = Remediator(
            snapshot.world,
            self.store,
            metrics,
            timers,
            Actor(
                world,
                self.store,
                self.policies.checkpoint_trust,
                self._point,
                self.policies.withheld,
                self.captures.described,
            ),
            self._calls(woken.set),
            doubt_window=DOUBT_SECONDS,
            repeat_after=5,
            verify_timeout=600,
            checkpoint_trust=self.policies.checkpoint_trust,
            stops_unverified=self.policies.stops_unverified,
            withheld=self.policies.withheld,
            captures=self.captures,
        )
        examiner = Examiner(
            snapshot.world, self.store, self.policies, metrics, timers, remediator.failed_again, self.scores
        )
        self.sweeper = Sweeper(snapshot.world, self.store, timers, doubt_window=DOUBT_SECONDS)
        storms = Storms(snapshot.world, self.store, limit=self._storm_runs, window=600)
        self._woken = woken
        self.worker = Worker(
            snapshot,
            self.store,
            examiner,
            remediator,
            metrics,
            timers,
            self.sweeper,
            storms,
            woken,
            interval=1,
            busy_interval=1,
            drain=self.drain(self.store),
        )

    @property
    def engine(self) -> sa.Engine:
        """That of the database that is open."""
        assert self._database is not None
        return self._database.engine

    def lose_database(self) -> None:
        """The file is gone; the process that comes back begins with an empty one."""
        self.close()
        for file in self.folder.glob("remediator.sqlite3*"):
            file.unlink()

    def switch(self, command: Callable[[sa.Connection, float], object]) -> None:
        """A person gives a command beside the remediator, by the clock of this world."""
        with self.engine.begin() as connection:
            command(connection, self.clock.now())

    def resume(self) -> None:
        """A person ends a storm."""
        self.switch(lambda connection, now: resume(connection, "alice", now))

    def close(self) -> None:
        """Let go of the database."""
        if self._database is not None:
            self._database.close()
        self._database = self._memory = None

    def _point(self, name: str) -> None:
        self.points.append(name)
        at_number = self.crash_at is not None and len(self.points) > self.crash_at
        if at_number or name == self.crash_at_name:
            self.crash_at = self.crash_at_name = None
            self.crashes += 1
            raise Crash(name)

    def durable(self, intent: str) -> Incident | None:
        """What the database holds of an intent right now, read over a connection of its own."""
        try:
            return self.store.incident(intent)
        except KeyError:
            return None

    def _note_state(self, connection: sa.Connection, incident: Incident, detail: str, kind: str | None = None) -> None:
        del connection, detail, kind
        self.states.append((self.clock.elapsed, incident.id, incident.state))

    def restarts(self, _database: str) -> dict[str, float] | Unknown:
        """What Prometheus has seen on the page of metrics."""
        if self.prometheus_down:
            return Unknown("Prometheus is down")
        for run_id, count in self.store.adoptions.restarts().items():
            self.remembered[run_id] = max(self.remembered.get(run_id, 0), count)
        return self.remembered

    def tick(self, count: int = 1, *, every: int = 1) -> None:
        """Seconds pass, with a round in each or `every` few; a remediator that died comes back in the next one."""
        for second in range(1, count + 1):
            self.clock.elapsed += 1
            for cluster in self.clusters:
                cluster.tick()
            if second % every:
                continue
            try:
                self._rounds()
            except Crash:
                for cluster in self.clusters:
                    cluster.accepted.clear()
                self.restart()

    def _rounds(self) -> None:
        """One round, and more where the end of a call wakes the loop."""
        with nullcontext() if self._memory is None else self._memory.undisturbed():
            self.worker.tick()
            while self._woken.is_set():
                self._woken.clear()
                self.worker.tick()

    def settle(self, *, hurry: bool = False) -> list[Incident]:
        """Let time pass until nothing happens any more, a quarter of an hour at most; returns all incidents.

        In a `hurry`, pass ten seconds at once while nothing happens: all sources are slow, or the process is paused.
        """
        quiet, same, before, end = 0, 0, None, self.clock.elapsed + 900
        while self.clock.elapsed < end and quiet <= 3:
            self.clock.elapsed += 9 if hurry and same > 5 else 0
            self.tick()
            pending = [each.alert.key for each in self.store.pending()]  # what they wait for may name a step that grows
            waiting = pending, [(each.id, each.state) for each in self.store.open_incidents()]
            ending = any(each.state is JobState.ENDING or each.late for each in self.clusters)
            quiet = 0 if any(waiting) or ending else quiet + 1
            now = waiting, ending, len(self.driver.calls)
            same, before = (same + 1 if now == before else 0), now
        return self.store.of_run(RUN)

    @property
    def our_starts(self) -> list[int]:
        """The generations that we replaced, one entry per start that we caused."""
        return [start.generation for start in self.cluster.starts if start.ours]


class _Records(Records):
    """Records that only show who owns them."""

    def __init__(self, runs_dir: Path | None, owners: Mapping[str, int]) -> None:
        super().__init__(runs_dir)
        self._owners = owners

    def owner(self, run_id: str) -> int | Unknown | None:
        return self._owners.get(run_id) if self._owners else super().owner(run_id)


def spread(count: int, wanted: int | None) -> list[int]:
    """The numbers below `count`: all of them, or `wanted` ones at equal distances."""
    return list(range(count)) if wanted is None else [count * (2 * each + 1) // (2 * wanted) for each in range(wanted)]


Make = Callable[..., Simulation]
# At how many of its points a process is killed, each time in a history of its own.
kills = pytest.mark.parametrize("kills", [3, pytest.param(None, id="everywhere", marks=pytest.mark.nightly)])
