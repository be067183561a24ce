"""A small world in memory: jobs, their scheduler, Prometheus and Alertmanager, and a log of what really started.

The scheduler can lose replies, apply calls late or twice, drop them or go down; the remediator can die at every named
point and comes back from its database. The log of starts is the oracle: it does not know what the remediator believes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import sqlalchemy as sa

from trainwarden_remediator.act import Actor, Answer
from trainwarden_remediator.calls import Calls
from trainwarden_remediator.capture import Captured
from trainwarden_remediator.choice import Policies
from trainwarden_remediator.database import open_database
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    CallResult,
    JobState,
    Reading,
    RestartTarget,
    ScheduledJob,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.evidence import Evidence, ReportedRun
from trainwarden_remediator.examine import Examiner
from trainwarden_remediator.incident import Alert, Incident, State
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.nodes import NodeSource, NoNodes
from trainwarden_remediator.policy import Policy, load_policy, shipped
from trainwarden_remediator.price import NoPrices, PriceSource
from trainwarden_remediator.readings import CountedDriver, CountedRuns
from trainwarden_remediator.remediate import Remediator
from trainwarden_remediator.score import Scores
from trainwarden_remediator.snapshot import Snapshot
from trainwarden_remediator.store import Store
from trainwarden_remediator.storm import Storms
from trainwarden_remediator.sweep import Sweeper
from trainwarden_remediator.switches import resume
from trainwarden_remediator.timers import Timers
from trainwarden_remediator.worker import Worker
from trainwarden_remediator.world import Firing, Records, World

T = TypeVar("T")
RUN, JOB = "run-1", "17"
DOUBT_SECONDS = 60.0
ENDING_TICKS = 3


class Crash(BaseException):
    """Kill -9, as far as a test inside one process can have it: nothing in the product catches it."""


class FakeClock:
    """Both clocks; a test moves them, and only the wall clock jumps."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.jump = 0.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.elapsed + self.jump

    def monotonic(self) -> float:
        return self.elapsed


@dataclass
class Start:
    """One start that really happened, from which generation and whether the remediator's call caused it."""

    generation: int
    ours: bool


@dataclass
class Cluster:
    """The truth about one job. `violations` collects what must never happen."""

    two_phase: bool
    clock: FakeClock
    job_id: str = JOB
    run_id: str = RUN
    nodes: tuple[str, ...] = ("n1",)
    state: JobState = JobState.RUNNING
    generation: int = 0
    ending: int = 0
    started: float | None = 0.0
    after_ending: JobState = JobState.HELD
    held_by_requeue: bool = True
    user: int | None = None
    excluded: set[str] = field(default_factory=set)
    hold_of: str | None = None
    hold_of_generation: int | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    over: bool = False
    starts: list[Start] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    late: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    progress_after_start: bool = True
    fails_after_start: bool = False
    queues_after_start: bool = False
    dies_unheard: bool = False
    attempt: int = 0
    attempt_key: str = ""
    run_state: str = "running"
    step: float = 40.0
    high_water: float = 40.0

    def __post_init__(self) -> None:
        self.attempt_key = f"sim:{self.job_id}:{self.generation}"

    def tick(self) -> None:
        """Let a second pass on the cluster."""
        due = [call for when, call in self.late if when <= self.clock.elapsed]
        self.late = [(when, call) for when, call in self.late if when > self.clock.elapsed]
        for call in due:
            call()
        if self.state is JobState.ENDING:
            self.ending -= 1
            if self.ending <= 0:
                self.state = self.after_ending
                if self.after_ending is JobState.RUNNING:
                    self._runs()

    def requeue_hold(self, generation: int, *, ended: bool, late: bool = False) -> None:
        """What `requeuehold` does to the job as it is, whatever the caller had in mind.

        One that takes effect late finds another start where the scheduler has requeued the job meanwhile: no caller can
        prevent that, and must make up for it.
        """
        if self.state in (JobState.RUNNING, JobState.FAILED) and (ended or self.state is JobState.RUNNING):
            self.held_by_requeue = True
            if self.generation != generation and not late:
                self.violations.append(f"S3: generation {self.generation} was ended because of {generation}")
            self._end(JobState.HELD)
        elif ended and self.over:
            self.violations.append("S4: a job that was over was requeued")

    def save(self) -> tuple[JobState, int, int, float | None]:
        """What the scheduler has written down of the job."""
        return self.state, self.generation, self.ending, self.started

    def forget(self, saved: tuple[JobState, int, int, float | None]) -> None:
        """The scheduler was killed, and begins again with what it had written down; processes of the job are gone."""
        self.state, self.generation, self.ending, self.started = saved

    def user_hold(self) -> None:
        """A person holds the job: its user while it waits, an administrator also where it is held already."""
        if self.state in (JobState.HELD, JobState.WAITING):
            self.state, self.held_by_requeue = JobState.HELD, False

    def release(self, *, late: bool = False) -> None:
        """What `release` does; one that takes effect late may find a hold that was not there when it was called."""
        if self.state is JobState.HELD and not self.held_by_requeue and not late:
            self.violations.append("a person's hold was released")
        if self.state is JobState.ENDING and self.after_ending is JobState.HELD:
            self.violations.append("S2: released while the old start was still ending")
        if self.state is JobState.HELD:
            self._begin(ours=True)

    def launcher_restart(self, token: str, expected: int) -> CallOutcome:
        """What the launcher does: end and start, once per token and only from the generation that was seen."""
        if token in self.tokens:
            return CallOutcome.ACCEPTED
        if self.over or self.generation != expected or self.state is JobState.ENDING:
            return CallOutcome.UNCLEAR
        self.tokens[token] = self.generation + 1
        self.starts.append(Start(self.generation, ours=True))
        self._end(JobState.RUNNING)
        return CallOutcome.ACCEPTED

    def requeue_by_slurm(self) -> None:
        """A node died: the scheduler starts the job again by itself."""
        if self.state is JobState.RUNNING:
            self.starts.append(Start(self.generation, ours=False))
            self._end(JobState.RUNNING)

    def cancel(self) -> None:
        """Its user ends it for good."""
        if not self.over:
            self.over = True
            self.state = JobState.CANCELLED
            self.run_state = "cancelled"

    def complete(self) -> None:
        """The training finishes."""
        if self.state is JobState.RUNNING:
            self.over = True
            self.state = JobState.COMPLETED
            self.run_state = "succeeded"

    def crash(self) -> None:
        """The training fails, and its record says so."""
        if self.state is JobState.RUNNING:
            self.state = JobState.FAILED
            self.run_state = "failed"

    def _end(self, then: JobState) -> None:
        self.generation += 1
        self.state = JobState.ENDING
        self.ending = ENDING_TICKS
        self.after_ending = then

    def _begin(self, *, ours: bool) -> None:
        if self.over:
            self.violations.append("S4: a job that was over was started")
        self.starts.append(Start(self.generation - 1, ours=ours))
        if self.queues_after_start:
            self.state = JobState.WAITING
        elif self.dies_unheard:
            self.state = JobState.FAILED
        else:
            self.state = JobState.RUNNING
            self._runs()

    def _runs(self) -> None:
        self.started = self.clock.elapsed
        self.attempt += 1
        self.attempt_key = f"sim:{self.job_id}:{self.generation}"
        self.run_state = "running"
        self.step = self.high_water + 1 if self.progress_after_start else self.high_water - 5
        self.high_water = max(self.high_water, self.step)
        if self.fails_after_start:
            self.crash()


class FakeDriver:
    """The way to the jobs, with faults. `fault` names what happens to the next calls, in order."""

    name = "sim"

    def __init__(self, clusters: Sequence[Cluster], durable: Callable[[str], Incident | None]) -> None:
        self.clusters = {cluster.job_id: cluster for cluster in clusters}
        self.clock = clusters[0].clock
        self.two_phase = clusters[0].two_phase
        self.down = False
        self.boots = 1
        self.notes_holds = True
        self.late_seconds = DOUBT_SECONDS / 2
        self.faults: list[str] = []
        self.calls: list[str] = []
        self.snapshots: list[tuple[float, frozenset[str]]] = []
        self.environment: dict[str, str] = {}
        self.excluded: tuple[str, ...] = ()
        self._durable = durable

    def snapshot(self, job_ids: Collection[str] = ()) -> FakeDriver:
        """Every reading is fresh."""
        self.snapshots.append((self.clock.elapsed, frozenset(job_ids)))
        return self

    def jobs(self) -> list[ScheduledJob] | Unknown:
        found = [self.job(job_id) for job_id in self.clusters]
        jobs = [job for job in found if isinstance(job, ScheduledJob)]
        return jobs if len(jobs) == len(found) else Unknown("the scheduler is down")

    def job(self, job_id: str) -> Reading:
        if self.down:
            return Unknown("the scheduler is down")
        cluster = self.clusters[job_id]
        return ScheduledJob(
            job_id,
            cluster.run_id,
            cluster.generation,
            cluster.state,
            cluster.state.value,
            None,
            dict(cluster.tokens),
            cluster.state is JobState.HELD and cluster.held_by_requeue,
            cluster.user,
            cluster.hold_of if cluster.hold_of_generation == cluster.generation - 1 else None,
            tuple(sorted(cluster.excluded)),
            nodes=cluster.nodes if cluster.state is JobState.RUNNING else (),
            started=cluster.started,
        )

    def prepare(self, target: RestartTarget) -> CallResult:
        cluster = self.clusters[target.job_id]
        ended = cluster.state is JobState.FAILED
        self._check_intent("prepare", target, (State.PREPARING,))

        if self.notes_holds:
            cluster.hold_of, cluster.hold_of_generation = target.incident, target.generation

        def apply(*, late: bool = False) -> CallOutcome:
            cluster.requeue_hold(target.generation, ended=ended, late=late)
            return CallOutcome.ACCEPTED

        return self._call("prepare", cluster, apply)

    def boot(self) -> str | Unknown:
        return Unknown("the scheduler is down") if self.down else str(self.boots)

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        return [] if job.refusal is None else [job.refusal]

    def exclude(self, target: RestartTarget) -> CallResult:
        cluster = self.clusters[target.job_id]
        cluster.excluded = (cluster.excluded - set(target.readmit_nodes)) | set(target.exclude_nodes)
        return CallResult(CallOutcome.ACCEPTED, "ok")

    def commit(self, target: RestartTarget) -> CallResult:
        self.exclude(target)
        cluster = self.clusters[target.job_id]
        self._check_intent("commit", target, (State.COMMITTED, State.VERIFYING))
        self.environment, self.excluded = dict(target.environment), target.exclude_nodes

        def apply(*, late: bool = False) -> CallOutcome:
            if self.two_phase:
                cluster.release(late=late)
                return CallOutcome.ACCEPTED
            return cluster.launcher_restart(target.incident, target.generation)

        return self._call("commit", cluster, apply)

    def _check_intent(self, name: str, target: RestartTarget, states: tuple[State, ...]) -> None:
        incident = self._durable(target.incident)
        if incident is None or incident.state not in states:
            violations = self.clusters[target.job_id].violations
            violations.append(f"S5: {name} without a durable intent: {incident and incident.state}")

    def _call(self, name: str, cluster: Cluster, apply: Callable[..., CallOutcome]) -> CallResult:
        fault = self.faults.pop(0) if self.faults else "none"
        self.calls.append(f"{name}: {fault}")
        if self.down or fault == "dropped":
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        if fault == "refused":
            return CallResult(CallOutcome.REFUSED, "permission denied")
        if fault == "late":
            cluster.late.append((self.clock.elapsed + self.late_seconds, lambda: (apply(late=True), None)[1]))
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        outcome = apply()
        if fault == "twice":
            apply()
        if fault == "lost reply, then down":
            self.down = True
        if fault.startswith("lost reply"):
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        if fault == "said yes, did nothing":
            return CallResult(CallOutcome.ACCEPTED, "ok")
        return CallResult(outcome, "ok")


class FakeCaptures:
    """A run that takes some seconds to show where its ranks stand; its file system may not answer."""

    timeout = 30.0

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._begun: dict[str, float] = {}
        self.begins = 0
        self.seconds = 0.0
        self.found = Captured("1 rank in all_reduce at train.py:8", "rank 1 (n2): no answer", "/captures/i")

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


def _not_synced(engine: sa.Engine) -> sa.Engine:
    # The machine outlives the simulated deaths: a commit need not reach the disk, which takes most of the time.
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    engine.dispose()
    return engine


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


class Simulation:
    """The remediator in that world. It dies at the named point that `crash_at` counts to, or `crash_at_name` names.

    Args:
        folder: of the database.
        two_phase: how the scheduler restarts jobs.
        policy: of all runs.
        storm_runs: so many may be restarted within ten minutes.
        runs: how many there are, each with a job and a node of its own; `cluster` is the first.
        canary_users: uids whose job may be the canary.
        calls: makes the calls to the scheduler, given what wakes the loop; by default each at once.
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
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._engine: sa.Engine | None = None
        default = _shipped_policies()[policy] if isinstance(policy, str) else policy
        self.policies = Policies(default, _shipped_policies(), mode="act")
        self.asked: str | None = None
        self.runs_dir: Path | None = None
        self.nodes: NodeSource = NoNodes()
        self.prices: PriceSource = NoPrices()
        self.clock = FakeClock()
        self.clusters = [
            Cluster(two_phase, self.clock, str(17 + number), f"run-{1 + number}", (f"n{1 + number}",))
            for number in range(runs)
        ]
        self.cluster = self.clusters[0]
        self.driver = FakeDriver(self.clusters, self.durable)
        self._calls = calls
        self.captures = FakeCaptures(self.clock)
        self._storm_runs = storm_runs
        self._canary_users = canary_users
        self.prometheus_down = False
        self.alertmanager_down = False
        self.silenced = False
        self.remembered: dict[str, float] = {}
        self.alive: float | None = None
        self.stall_budget: float | None = None
        self.checkpoint_step: float | None = None
        self.figures: dict[str, float] = {}
        self.points: list[str] = []
        self.crash_at: int | None = None
        self.crash_at_name: str | None = None
        self.crashes = 0
        self._firing_since: dict[tuple[str, str, int], float] = {}
        self.restart()

    def restart(self) -> None:
        """A new process on the old database."""
        if self._engine is not None:
            self._engine.dispose()
        self.captures.restart()
        self._engine = _not_synced(open_database(self._folder))
        self.store = Store(self._engine, self.clock, self._point)
        timers = Timers(self.store, self.clock)
        self.metrics = metrics = Metrics(["prometheus", "sim"], self.clock.monotonic)
        drivers = {"sim": CountedDriver(self.driver, metrics)}
        world = World(
            self.clock,
            self,
            CountedRuns(self, metrics),
            drivers,
            Records(self.runs_dir),
            self.nodes,
            self.prices,
            self._canary_users,
        )
        woken = threading.Event()
        snapshot = Snapshot(world, 15)
        self.scores = Scores(self._engine, self.clock, world.runs)
        remediator = Remediator(
            snapshot.world,
            self.store,
            metrics,
            timers,
            Actor(world, self.store, self.policies.checkpoint_trust, self._point),
            self._calls(woken.set),
            doubt_window=DOUBT_SECONDS,
            repeat_after=5,
            verify_timeout=600,
            checkpoint_trust=self.policies.checkpoint_trust,
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
        )

    def lose_database(self) -> None:
        """The file is gone; the process that comes back begins with an empty one."""
        self.close()
        for file in self._folder.glob("remediator.sqlite3*"):
            file.unlink()
        self._engine = None

    def switch(self, command: Callable[[sa.Connection, float], object]) -> None:
        """A person gives a command beside the remediator, by the clock of this world."""
        assert self._engine is not None
        with self._engine.begin() as connection:
            command(connection, self.clock.now())

    def resume(self) -> None:
        """A person ends a storm."""
        self.switch(lambda connection, now: resume(connection, "alice", now))

    def close(self) -> None:
        """Let go of the database."""
        if self._engine is not None:
            self._engine.dispose()

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

    def alerts_now(self) -> list[Alert]:
        """What Prometheus' rules would fire: a failed run, or one that runs without passing its high-water mark."""
        return [alert for cluster in self.clusters for alert in self._alerts_of(cluster)]

    def _alerts_of(self, cluster: Cluster) -> list[Alert]:
        if cluster.run_state == "failed":
            name, mode = "TrainRunFailed", "crash"
        elif cluster.run_state == "running" and cluster.step <= cluster.high_water and not _recovered(cluster):
            name, mode = "TrainRunStalled", "stall"
        else:
            return []
        since = self._firing_since.setdefault((cluster.run_id, name, cluster.attempt), self.clock.now())
        labels = {
            "alertname": name,
            "run_id": cluster.run_id,
            "job_id": cluster.job_id,
            "attempt": str(cluster.attempt),
            "scheduler": "sim",
            "failure_mode": mode,
            "remediate": "true",
        }
        return [Alert(labels, since)]

    def firing(self) -> Firing:
        """The AlertSource."""
        if self.alertmanager_down:
            return Unknown("Alertmanager is down")
        return [] if self.silenced else self.alerts_now()

    def run(self, run_id: str) -> Evidence:
        """One run as Prometheus shows it."""
        if self.prometheus_down:
            return Unknown("Prometheus is down")
        [cluster] = [each for each in self.clusters if each.run_id == run_id]
        now = (cluster.attempt_key, cluster.run_state, cluster.step, cluster.high_water)
        return ReportedRun(
            run_id,
            cluster.attempt,
            *now,
            policy=self.asked,
            alive=self.alive,
            stall_budget=self.stall_budget,
            checkpoint_step=self.checkpoint_step,
            figures=dict(self.figures),
        )

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        """The RunSource."""
        return {run_id: self.run(run_id) for run_id in run_ids}

    def restarts(self, _database: str) -> dict[str, float] | Unknown:
        """What Prometheus has seen on the page of metrics."""
        if self.prometheus_down:
            return Unknown("Prometheus is down")
        for run_id, count in self.store.restarts().items():
            self.remembered[run_id] = max(self.remembered.get(run_id, 0), count)
        return self.remembered

    def tick(self, count: int = 1) -> None:
        """Seconds pass; a remediator that died comes back one second later."""
        for _ in range(count):
            self.clock.elapsed += 1
            for cluster in self.clusters:
                cluster.tick()
            try:
                self._rounds()
            except Crash:
                self.restart()

    def _rounds(self) -> None:
        """One round, and more where the end of a call wakes the loop."""
        self.worker.tick()
        while self._woken.is_set():
            self._woken.clear()
            self.worker.tick()

    def settle(self) -> list[Incident]:
        """Let time pass until nothing happens any more, a quarter of an hour at most; returns all incidents."""
        quiet = 0
        for _ in range(900):
            self.tick()
            busy = self.store.open_incidents() or self.store.pending() or any(each.late for each in self.clusters)
            ending = any(each.state is JobState.ENDING for each in self.clusters)
            quiet = 0 if busy or ending else quiet + 1
            if quiet > 3:
                break
        return self.store.of_run(RUN)

    @property
    def our_starts(self) -> list[int]:
        """The generations that we replaced, one entry per start that we caused."""
        return [start.generation for start in self.cluster.starts if start.ours]


def _recovered(cluster: Cluster) -> bool:
    return cluster.attempt > 0 and cluster.progress_after_start


Make = Callable[..., Simulation]
