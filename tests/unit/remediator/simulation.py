"""A small world in memory: one job, its scheduler, Prometheus and Alertmanager, and a log of what really started.

The scheduler can lose replies, apply calls late or twice, drop them or go down; the remediator can die at every named
point and comes back from its database. The log of starts is the oracle: it does not know what the remediator believes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

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
from trainwarden_remediator.policy import Policy, load_policy, shipped
from trainwarden_remediator.remediate import Remediator
from trainwarden_remediator.store import Store
from trainwarden_remediator.worker import Worker
from trainwarden_remediator.world import Firing, Records, World

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
    """The truth about the one job. `violations` collects what must never happen."""

    two_phase: bool
    clock: FakeClock
    state: JobState = JobState.RUNNING
    generation: int = 0
    ending: int = 0
    after_ending: JobState = JobState.HELD
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
    attempt_key: str = f"sim:{JOB}:0"
    run_state: str = "running"
    step: float = 40.0
    high_water: float = 40.0

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

    def requeue_hold(self, generation: int, *, ended: bool) -> None:
        """What `requeuehold` does to the job as it is, whatever the caller had in mind."""
        if self.state in (JobState.RUNNING, JobState.FAILED) and (ended or self.state is JobState.RUNNING):
            if self.generation != generation:
                self.violations.append(f"S3: generation {self.generation} was ended because of {generation}")
            self._end(JobState.HELD)
        elif ended and self.over:
            self.violations.append("S4: a job that was over was requeued")

    def release(self) -> None:
        """What `release` does."""
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
        self.attempt += 1
        self.attempt_key = f"sim:{JOB}:{self.generation}"
        self.run_state = "running"
        self.step = self.high_water + 1 if self.progress_after_start else self.high_water - 5
        self.high_water = max(self.high_water, self.step)
        if self.fails_after_start:
            self.crash()


class FakeDriver:
    """The way to the cluster, with faults. `fault` names what happens to the next calls, in order."""

    name = "sim"

    def __init__(self, cluster: Cluster, durable: Callable[[str], Incident | None]) -> None:
        self.cluster = cluster
        self.two_phase = cluster.two_phase
        self.down = False
        self.faults: list[str] = []
        self.calls: list[str] = []
        self.environment: dict[str, str] = {}
        self._durable = durable

    def refresh(self) -> None:
        """Every reading is fresh."""

    def job(self, job_id: str) -> Reading:
        if self.down:
            return Unknown("the scheduler is down")
        assert job_id == JOB
        cluster = self.cluster
        return ScheduledJob(
            JOB, RUN, cluster.generation, cluster.state, cluster.state.value, None, dict(cluster.tokens)
        )

    def prepare(self, target: RestartTarget) -> CallResult:
        ended = self.cluster.state is JobState.FAILED
        self._check_intent("prepare", target, (State.PREPARING,))

        def apply() -> CallOutcome:
            self.cluster.requeue_hold(target.generation, ended=ended)
            return CallOutcome.ACCEPTED

        return self._call("prepare", apply)

    def commit(self, target: RestartTarget) -> CallResult:
        self._check_intent("commit", target, (State.COMMITTED, State.VERIFYING))
        self.environment = dict(target.environment)

        def apply() -> CallOutcome:
            if self.two_phase:
                self.cluster.release()
                return CallOutcome.ACCEPTED
            return self.cluster.launcher_restart(target.incident, target.generation)

        return self._call("commit", apply)

    def _check_intent(self, name: str, target: RestartTarget, states: tuple[State, ...]) -> None:
        incident = self._durable(target.incident)
        if incident is None or incident.state not in states:
            self.cluster.violations.append(f"S5: {name} without a durable intent: {incident and incident.state}")

    def _call(self, name: str, apply: Callable[[], CallOutcome]) -> CallResult:
        fault = self.faults.pop(0) if self.faults else "none"
        self.calls.append(f"{name}: {fault}")
        if self.down or fault == "dropped":
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        if fault == "refused":
            return CallResult(CallOutcome.REFUSED, "permission denied")
        if fault == "late":
            self.cluster.late.append((self.cluster.clock.elapsed + DOUBT_SECONDS / 2, lambda: (apply(), None)[1]))
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


@functools.cache
def _shipped_policies() -> dict[str, Policy]:
    return {name: load_policy(name) for name in shipped()}


def _not_synced(engine: sa.Engine) -> sa.Engine:
    # The machine outlives the simulated deaths: a commit need not reach the disk, which takes most of the time.
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    engine.dispose()
    return engine


class Simulation:
    """The remediator in that world. It dies at the named point that `crash_at` counts to, or `crash_at_name` names."""

    def __init__(self, folder: Path, *, two_phase: bool, policy: str | Policy = "default") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._engine: sa.Engine | None = None
        default = _shipped_policies()[policy] if isinstance(policy, str) else policy
        self.policies = Policies(default, _shipped_policies())
        self.asked: str | None = None
        self.runs_dir: Path | None = None
        self.clock = FakeClock()
        self.cluster = Cluster(two_phase, self.clock)
        self.driver = FakeDriver(self.cluster, self.durable)
        self.prometheus_down = False
        self.alertmanager_down = False
        self.silenced = False
        self.points: list[str] = []
        self.crash_at: int | None = None
        self.crash_at_name: str | None = None
        self.crashes = 0
        self._firing_since: dict[tuple[str, int], float] = {}
        self.restart()

    def restart(self) -> None:
        """A new process on the old database."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine = _not_synced(open_database(self._folder))
        self.store = Store(self._engine, self.clock, self._point)
        world = World(self.clock, self, self, {"sim": self.driver}, Records(self.runs_dir))
        self.metrics = metrics = Metrics()
        remediator = Remediator(
            world,
            self.store,
            metrics,
            doubt_window=DOUBT_SECONDS,
            repeat_after=5,
            verify_timeout=600,
            checkpoint_trust=self.policies.checkpoint_trust,
            crashpoint=self._point,
        )
        examiner = Examiner(world, self.store, self.policies, metrics, remediator.failed_again)
        self.worker = Worker(world, self.store, examiner, remediator, metrics, interval=1, busy_interval=1)

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
        return next((each for each in self.store.of_run(RUN) if each.id == intent), None)

    def alerts_now(self) -> list[Alert]:
        """What Prometheus' rules would fire: a failed run, or one that runs without passing its high-water mark."""
        cluster = self.cluster
        if cluster.run_state == "failed":
            name, mode = "TrainRunFailed", "crash"
        elif cluster.run_state == "running" and cluster.step <= cluster.high_water and not self._recovered():
            name, mode = "TrainRunStalled", "stall"
        else:
            return []
        since = self._firing_since.setdefault((name, cluster.attempt), self.clock.now())
        labels = {
            "alertname": name,
            "run_id": RUN,
            "job_id": JOB,
            "attempt": str(cluster.attempt),
            "scheduler": "sim",
            "failure_mode": mode,
            "remediate": "true",
        }
        return [Alert(labels, since)]

    def _recovered(self) -> bool:
        return self.cluster.attempt > 0 and self.cluster.progress_after_start

    def firing(self) -> Firing:
        """The AlertSource."""
        if self.alertmanager_down:
            return Unknown("Alertmanager is down")
        return [] if self.silenced else self.alerts_now()

    def run(self, run_id: str) -> Evidence:
        """The RunSource."""
        if self.prometheus_down:
            return Unknown("Prometheus is down")
        cluster = self.cluster
        now = (cluster.attempt_key, cluster.run_state, cluster.step, cluster.high_water)
        return ReportedRun(run_id, cluster.attempt, *now, policy=self.asked)

    def tick(self, count: int = 1) -> None:
        """Seconds pass; a remediator that died comes back one second later."""
        for _ in range(count):
            self.clock.elapsed += 1
            self.cluster.tick()
            try:
                self.worker.tick()
            except Crash:
                self.restart()

    def settle(self) -> list[Incident]:
        """Let time pass until nothing happens any more, a quarter of an hour at most; returns all incidents."""
        quiet = 0
        for _ in range(900):
            self.tick()
            busy = self.store.open_incidents() or self.store.pending() or self.cluster.late
            quiet = 0 if busy or self.cluster.state is JobState.ENDING else quiet + 1
            if quiet > 3:
                break
        return self.store.of_run(RUN)

    @property
    def our_starts(self) -> list[int]:
        """The generations that we replaced, one entry per start that we caused."""
        return [start.generation for start in self.cluster.starts if start.ours]
