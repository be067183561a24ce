"""A small world in memory: jobs, their scheduler, Prometheus and Alertmanager, and a log of what really started.

The scheduler can lose replies, apply calls late or twice, drop them or go down; the remediator can die at every named
point and comes back from its database. The log of starts is the oracle: it does not know what the remediator believes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import sqlalchemy as sa

from tests.unit.remediator.simulated_database import Memory, SimulatedDatabase
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import Calls
from trainwarden_remediator.act.capture import Captured
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    CallResult,
    JobState,
    Reading,
    RestartTarget,
    ScheduledJob,
    Shape,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.incidents.incident import Alert, Incident, State
from trainwarden_remediator.incidents.price import NoPrices, PriceSource
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.cpu_time import CpuSource, NoCpu
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes
from trainwarden_remediator.observe.readings import CountedDriver, CountedRuns
from trainwarden_remediator.observe.snapshot import Snapshot
from trainwarden_remediator.observe.world import Firing, Records, World
from trainwarden_remediator.policies.policy import Policy, load_policy, shipped
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.switches import resume
from trainwarden_remediator.store.timers import Timers
from trainwarden_remediator.worker import Worker

T = TypeVar("T")
RUN, JOB = "run-1", "17"
DOUBT_SECONDS = 60.0
ENDING_TICKS = 3
# When a run that is at work is reported to have halted.
HALTED = 1_799_980_000.0


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
    """One start that really happened: the generation that it replaced, when that had begun, and whose call it was.

    `replaced` is how that generation had ended: "crash", "stall" where it was ended while it ran, or "late" where that
    was by a call that took effect late. `step` is the highest that the run had reached.
    """

    generation: int
    ours: bool
    began: float | None = None
    replaced: str = ""
    step: float = 0.0


@dataclass
class Submission:
    """A job that the remediator has submitted, until it starts; `replaces` is the number of the one before."""

    job_id: str
    token: str
    replaces: int
    began: float | None
    excluded: set[str]
    state: JobState = JobState.HELD


@dataclass
class Cluster:
    """The truth about one run's job, and those that come after it. `violations` collects what must never happen."""

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
    # The incidents whose calls to end an attempt have not taken effect yet.
    to_come: list[str] = field(default_factory=list)
    ended_by: str = ""
    # Whether it has run since its last start was given.
    ran: bool = True
    # It makes no step although it runs, or makes one each second, whatever its record says.
    hangs: bool = True
    steps: bool = False
    progress_after_start: bool = True
    fails_after_start: bool = False
    queues_after_start: bool = False
    dies_unheard: bool = False
    given_away: bool = False
    # A person holds it as soon as it is in this state.
    to_be_held: JobState | None = None
    past: list[tuple[JobState, int, int, float | None]] = field(default_factory=list)
    attempt: int = 0
    attempt_key: str = ""
    run_state: str = "running"
    step: float = 40.0
    high_water: float = 40.0
    shape: Shape | None = None
    submission: str | None = None
    # Jobs by their ids: those that were the present one before, those that are to be, and the order of all starts.
    before: dict[str, ScheduledJob] = field(default_factory=dict)
    submissions: dict[str, Submission] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    stopped: float | None = None

    def __post_init__(self) -> None:
        self.attempt_key = f"sim:{self.job_id}:{self.generation}"
        self.order.append(self.job_id)

    def ids(self) -> list[str]:
        """All jobs of the run that the scheduler lists."""
        return [*self.before, self.job_id, *self.submissions]

    def stop(self, job_id: str, *, late: bool = False) -> None:
        """What `scancel` does: of a job that is not there any more, nothing."""
        if self.given_away:
            self._touch_another("ended", late=late)
        elif job_id == self.job_id and self.state is JobState.RUNNING:
            self.ended_by = "late" if late else "stall"
            self.state, self.ending, self.after_ending = JobState.ENDING, ENDING_TICKS, JobState.CANCELLED

    def submit(self, token: str, replaced: str, job_id: str = "") -> str:
        """What `sbatch --hold` does; with an id, what a scheduler does that has no holds, and takes each id once."""
        if job_id and job_id in self.ids():
            return job_id
        made = job_id or f"{self.order[0]}{len(self.ids())}"
        self.submissions[made] = Submission(made, token, self.order.index(replaced), self.started, set(self.excluded))
        if job_id:
            self._begin_job(self.submissions[made])
        return made

    def release_job(self, job_id: str, *, late: bool = False) -> None:
        """What `release` does to a job that was submitted."""
        job = self.submissions.get(job_id)
        if job is not None and job.state is JobState.HELD:
            self._begin_job(job)
        elif job_id == self.job_id and self.state is JobState.HELD and not late:
            self.violations.append("a person's hold was released")

    def discard_job(self, job_id: str) -> None:
        """What `scancel --state=PENDING` does to a job that was submitted."""
        job = self.submissions.get(job_id)
        if job is not None and job.state is JobState.HELD:
            job.state = JobState.CANCELLED

    def _begin_job(self, job: Submission) -> None:
        """A job that was submitted becomes the present one."""
        if self.over:
            self.violations.append("S4: a job that was over was started")
        if self.state in (JobState.RUNNING, JobState.ENDING):
            self.violations.append("S2: a job was started beside one that lives")
        failure = "crash" if self.state is JobState.FAILED else self.ended_by
        self.starts.append(Start(job.replaces, True, job.began, failure, self.high_water))
        self.ran = False
        del self.submissions[job.job_id]
        self.before[self.job_id] = self.shown(self.job_id)
        self.order.append(job.job_id)
        self.job_id, self.submission, self.excluded, self.generation = job.job_id, job.token, job.excluded, 0
        if self.queues_after_start:
            self.state = JobState.WAITING
        elif self.dies_unheard:
            self.state = JobState.FAILED
        else:
            self.state = JobState.RUNNING
            self._runs()

    def shown(self, job_id: str) -> ScheduledJob:
        """One job as the scheduler shows it."""
        if job_id in self.before:
            return self.before[job_id]
        if job_id in self.submissions:
            job = self.submissions[job_id]
            avoided = tuple(sorted(job.excluded))
            return ScheduledJob(
                job_id,
                self.run_id,
                0,
                job.state,
                job.state.value,
                user=self.user,
                excluded_nodes=avoided,
                shape=self.shape,
                submission=job.token,
            )
        return ScheduledJob(
            job_id,
            "somebody-elses" if self.given_away else self.run_id,
            self.generation,
            self.state,
            self.state.value,
            None,
            dict(self.tokens),
            self.state is JobState.HELD and self.held_by_requeue,
            self.user,
            self.hold_of if self.hold_of_generation == self.generation - 1 else None,
            tuple(sorted(self.excluded)),
            nodes=self.nodes if self.state is JobState.RUNNING else (),
            started=self.started,
            shape=self.shape,
            submission=self.submission,
        )

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
        if self.steps and self.state is JobState.RUNNING:
            self.step = self.high_water = self.high_water + 1
        if self.to_be_held is self.state:
            self.user_hold()
            self.to_be_held = None
        self.past = [*self.past[-9:], self.save()]

    def requeue_hold(self, generation: int, *, ended: bool, late: bool = False) -> None:
        """What `requeuehold` does to the job as it is, whatever the caller had in mind.

        One that takes effect late finds another start where the scheduler has requeued the job meanwhile: no caller can
        prevent that, and must make up for it. So it is with one that an answer of the scheduler has led to which was
        old itself.
        """
        if self.given_away:
            self._touch_another("ended", late=late)
        elif self.state in (JobState.RUNNING, JobState.FAILED) and (ended or self.state is JobState.RUNNING):
            self.held_by_requeue = True
            if self.generation != generation and not late:
                self.violations.append(f"S3: generation {self.generation} was ended because of {generation}")
            failure = "stall" if self.state is JobState.RUNNING else "crash"
            self._end(JobState.HELD, "late" if late else failure)
        elif ended and self.over:
            self.violations.append("S4: a job that was over was requeued")

    def give_away(self) -> None:
        """The scheduler has lost the job, and gives its id to one of somebody else."""
        self.given_away, self.over = True, True
        self.state, self.generation, self.started = JobState.RUNNING, 0, self.clock.elapsed

    def _touch_another(self, what: str, *, late: bool) -> None:
        if not late:
            self.violations.append(f"S3: a job of somebody else was {what}")

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
        if self.given_away:
            self._touch_another("released", late=late)
            return
        if self.state is JobState.HELD and not self.held_by_requeue and not late:
            self.violations.append("a person's hold was released")
        if self.state is JobState.ENDING and self.after_ending is JobState.HELD:
            self.violations.append("S2: released while the old start was still ending")
        if self.state is JobState.HELD:
            self._begin(ours=True)

    def launcher_restart(self, token: str, expected: int, *, late: bool = False) -> CallOutcome:
        """What the launcher does: end and start, once per token and only from the generation that was seen.

        `late` is a call that takes effect when it is no longer in doubt: the restart may have been withdrawn by then.
        """
        if self.given_away:
            self._touch_another("restarted", late=False)
        if token in self.tokens:
            return CallOutcome.ACCEPTED
        if self.over or self.generation != expected or self.state is JobState.ENDING:
            return CallOutcome.UNCLEAR
        self.tokens[token] = self.generation + 1
        failure = "late" if late else "stall" if self.state is JobState.RUNNING else "crash"
        self.starts.append(Start(self.generation, True, self.started, failure, self.high_water))
        self._end(JobState.RUNNING, failure)
        return CallOutcome.ACCEPTED

    def requeue_by_slurm(self) -> None:
        """A node died: the scheduler starts the job again by itself, unless it must not be requeued."""
        if self.state is JobState.RUNNING and not self._gives_new_job:
            self.starts.append(Start(self.generation, False, self.started))
            self._end(JobState.RUNNING)

    def get_its_turn(self) -> None:
        """Its turn in the queue comes."""
        if self.state is JobState.WAITING:
            self.state = JobState.RUNNING
            self._runs()

    def cancel(self) -> None:
        """Its user ends it for good; one whose job a call has just ended, or may have, has nothing to end."""
        called = self.stopped is not None and self.clock.elapsed - self.stopped <= DOUBT_SECONDS + ENDING_TICKS
        if self._gives_new_job and (called or self.state in (JobState.ENDING, JobState.CANCELLED)):
            return
        if not self.over:
            for job in self.submissions.values():
                job.state = JobState.CANCELLED
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

    @property
    def _gives_new_job(self) -> bool:
        return self.shape is not None and self.shape.gives_new_job

    def write_error(self) -> None:
        """The training writes that it has failed, and goes on."""
        if self.state is JobState.RUNNING:
            self.run_state, self.steps = "failed", True

    @property
    def stalls(self) -> bool:
        """Whether it has made no step since its start, or none any more."""
        return self.hangs and not self.steps and self.step <= self.high_water

    def hang(self) -> None:
        """The training runs, and makes no step any more."""
        self.hangs, self.steps = True, False

    def _end(self, then: JobState, by: str = "") -> None:
        self.ended_by = by
        self.generation += 1
        self.state = JobState.ENDING
        self.ending = ENDING_TICKS
        self.after_ending = then

    def _begin(self, *, ours: bool) -> None:
        if self.over:
            self.violations.append("S4: a job that was over was started")
        start = Start(self.generation - 1, ours, self.started, self.ended_by, self.high_water)
        if self.ran or start not in self.starts:  # else it waited in the queue, and was held and released there
            self.starts.append(start)
        self.ran = False
        if self.queues_after_start:
            self.state = JobState.WAITING
        elif self.dies_unheard:
            self.state = JobState.FAILED
        else:
            self.state = JobState.RUNNING
            self._runs()

    def _runs(self) -> None:
        self.ran = True
        self.started = self.clock.elapsed
        self.attempt += 1
        self.attempt_key = f"sim:{self.job_id}:{self.generation}"
        self.run_state = "running"
        self.hangs, self.steps = not self.progress_after_start, False
        self.step = self.high_water + 1 if self.progress_after_start else self.high_water - 5
        self.high_water = max(self.high_water, self.step)
        if self.fails_after_start:
            self.crash()


class FakeDriver:
    """The way to the jobs, with faults. `fault` names what happens to the next calls, in order."""

    name = "sim"

    def __init__(self, clusters: Sequence[Cluster], durable: Callable[[str], Incident | None]) -> None:
        self._clusters = clusters
        self.clock = clusters[0].clock
        self.two_phase = clusters[0].two_phase
        self.shape = Shape.REQUEUE if self.two_phase else Shape.ONE_CALL
        self.down = False
        self.boots = 1
        self.notes_holds = True
        self.late_seconds = DOUBT_SECONDS / 2
        self.faults: list[str] = []
        self.calls: list[str] = []
        self.snapshots: list[tuple[float, frozenset[str]]] = []
        self.environment: dict[str, str] = {}
        self.excluded: tuple[str, ...] = ()
        self.made: list[tuple[str, str]] = []
        # Why the attempt of this target must not be ended now; None if it may be.
        self.forbidden: Callable[[RestartTarget], str | None] = lambda _target: None
        # When a call to end a start was last made that the scheduler has not refused, by job and generation.
        self.asked_to_end: dict[tuple[str, int], float] = {}
        self._durable = durable
        self._old: dict[str, Reading] = {}
        self._old_until = 0.0

    @property
    def clusters(self) -> dict[str, Cluster]:
        """The runs by the ids of their jobs."""
        return {job_id: cluster for cluster in self._clusters for job_id in cluster.ids()}

    def answer_with_what_was(self, seconds: float) -> None:
        """Answer for a while with what is now: from a cache, or by a controller that is behind."""
        self._old_until = 0.0
        self._old = {job_id: self.job(job_id) for job_id in self.clusters}
        self._old_until = self.clock.elapsed + seconds

    @property
    def is_behind(self) -> bool:
        return self.clock.elapsed < self._old_until

    def snapshot(self, job_ids: Collection[str] = ()) -> FakeDriver:
        """Every reading is fresh."""
        self.snapshots.append((self.clock.elapsed, frozenset(job_ids)))
        return self

    def jobs(self) -> list[ScheduledJob] | Unknown:
        found = [self.job(job_id) for job_id in (self._old if self.is_behind else self.clusters)]
        jobs = [job for job in found if isinstance(job, ScheduledJob)]
        return jobs if len(jobs) == len(found) else Unknown("the scheduler is down")

    def job(self, job_id: str) -> Reading:
        if self.down:
            return Unknown("the scheduler is down")
        if self.is_behind:
            return self._old.get(job_id, Absent())
        cluster = self.clusters.get(job_id)
        return Absent() if cluster is None else cluster.shown(job_id)

    def submitted(self, target: RestartTarget) -> list[ScheduledJob] | Unknown:
        jobs = self.jobs()
        return jobs if isinstance(jobs, Unknown) else [job for job in jobs if job.submission == target.incident]

    def prepare(self, target: RestartTarget) -> CallResult:
        cluster = self.clusters[target.job_id]
        ended = cluster.state is JobState.FAILED
        self._check_intent("prepare", target, (State.PREPARING,))
        self._check_allowed(cluster, target)
        asked = self.asked_to_end.get((target.job_id, target.generation))
        if asked is not None and self.clock.elapsed - asked < DOUBT_SECONDS:
            cluster.violations.append("L3: called again while the earlier call may still take effect")
        behind = self.is_behind

        if self.notes_holds:
            cluster.hold_of, cluster.hold_of_generation = target.incident, target.generation

        if target.shape.gives_new_job:
            cluster.stopped = self.clock.elapsed

        def apply(*, late: bool = False) -> CallOutcome:
            if target.shape.gives_new_job:
                cluster.stop(target.job_id, late=late or behind)
                return CallOutcome.ACCEPTED
            cluster.requeue_hold(target.generation, ended=ended, late=late or behind)
            return CallOutcome.ACCEPTED

        result = self._call("prepare", cluster, apply, target)
        if result.outcome is not CallOutcome.REFUSED:
            self.asked_to_end[target.job_id, target.generation] = self.clock.elapsed
        return result

    def boot(self) -> str | Unknown:
        return Unknown("the scheduler is down") if self.down else str(self.boots)

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        return [] if job.refusal is None else [job.refusal]

    def exclude(self, target: RestartTarget) -> CallResult:
        cluster = self.clusters[target.job_id]
        if target.successor in cluster.submissions:
            avoided = cluster.submissions[target.successor].excluded
            avoided.difference_update(target.readmit_nodes)
            avoided.update(target.exclude_nodes)
            return CallResult(CallOutcome.ACCEPTED, "ok")
        cluster.excluded = (cluster.excluded - set(target.readmit_nodes)) | set(target.exclude_nodes)
        return CallResult(CallOutcome.ACCEPTED, "ok")

    def commit(self, target: RestartTarget) -> CallResult:
        cluster = self.clusters[target.job_id]
        submits = target.shape is Shape.RESUBMIT and not target.successor
        if not submits:
            self.exclude(target)
        self._check_intent("commit", target, (State.COMMITTED, State.VERIFYING))
        self.environment, self.excluded = dict(target.environment), target.exclude_nodes
        behind = self.is_behind
        if not self.two_phase or (target.shape.gives_new_job and cluster.state is JobState.FAILED and submits):
            self._check_allowed(cluster, target)
        made: list[str] = []

        def apply(*, late: bool = False) -> CallOutcome:
            if target.shape is Shape.SUBMIT:
                cluster.submit(target.incident, target.job_id, f"{cluster.order[0]}-a{target.attempt}")
                return CallOutcome.ACCEPTED
            if submits:
                made.append(cluster.submit(target.incident, target.job_id))
                return CallOutcome.ACCEPTED
            if target.shape is Shape.RESUBMIT:
                for job in [each for each in cluster.submissions.values() if each.token == target.incident]:
                    if job.job_id != target.successor:
                        cluster.discard_job(job.job_id)
                cluster.release_job(target.successor, late=late or behind)
                return CallOutcome.ACCEPTED
            if self.two_phase:
                cluster.release(late=late or behind)
                return CallOutcome.ACCEPTED
            return cluster.launcher_restart(target.incident, target.generation, late=self.clock.elapsed >= doubted)

        doubted = self.clock.elapsed + DOUBT_SECONDS
        result = self._call("submit" if submits else "commit", cluster, apply, target)
        return replace(result, job_id=made[0]) if result.outcome is CallOutcome.ACCEPTED and made else result

    def discard(self, target: RestartTarget) -> CallResult:
        self.made.append((target.incident, "discard"))
        cluster = self.clusters[target.job_id]

        def apply(*, late: bool = False) -> CallOutcome:  # the same whenever it comes
            cluster.discard_job(target.successor)
            return CallOutcome.ACCEPTED

        return self._call("discard", cluster, apply, target)

    def _check_intent(self, name: str, target: RestartTarget, states: tuple[State, ...]) -> None:
        submits = name == "commit" and target.shape is Shape.RESUBMIT and not target.successor
        self.made.append((target.incident, "submit" if submits else name))
        incident = self._durable(target.incident)
        if incident is None or incident.state not in states:
            violations = self.clusters[target.job_id].violations
            violations.append(f"S5: {name} without a durable intent: {incident and incident.state}")

    def _check_allowed(self, cluster: Cluster, target: RestartTarget) -> None:
        if why := self.forbidden(target):
            cluster.violations.append(f"S7: an attempt was ended: {why}")

    def _call(
        self, name: str, cluster: Cluster, apply: Callable[..., CallOutcome], target: RestartTarget
    ) -> CallResult:
        fault = self.faults.pop(0) if self.faults else "none"
        self.calls.append(f"{name}: {fault}")
        if self.down or fault == "dropped":
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        if fault == "refused":
            return CallResult(CallOutcome.REFUSED, "permission denied")
        if fault == "said yes, did nothing":
            return CallResult(CallOutcome.ACCEPTED, "ok")
        if fault in ("late", "very late"):
            # One that ends a job by an id that no other start has does no harm later.
            in_time = name == "prepare" and fault == "late" and not target.shape.gives_new_job

            def take_effect() -> None:
                if in_time:
                    cluster.to_come.remove(target.incident)
                apply(late=True)

            if in_time:
                cluster.to_come.append(target.incident)
            seconds = self.late_seconds if fault == "late" else 1.5 * DOUBT_SECONDS
            cluster.late.append((self.clock.elapsed + seconds, take_effect))
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        outcome = apply()
        if fault == "twice":
            apply()
        if fault == "lost reply, then down":
            self.down = True
        if fault.startswith("lost reply"):
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        return CallResult(outcome, "ok")


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


class Simulation:
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
        self._folder = folder
        self._database: SimulatedDatabase | None = None
        self._remember = calls is CallsAtOnce
        self._memory: Memory | None = None
        default = _shipped_policies()[policy] if isinstance(policy, str) else policy
        self.policies = Policies(default, _shipped_policies(), mode="act")
        self.asked: str | None = None
        self.runs_dir: Path | None = None
        self.nodes: NodeSource = NoNodes()
        self.prices: PriceSource = NoPrices()
        self.cpu: CpuSource = NoCpu()
        self.clock = FakeClock()
        self.clusters = [
            Cluster(two_phase, self.clock, str(17 + number), f"run-{1 + number}", (f"n{1 + number}",))
            for number in range(runs)
        ]
        for each in self.clusters:
            each.shape = shape
        self.cluster = self.clusters[0]
        self.driver = FakeDriver(self.clusters, self.durable)
        self._calls = calls
        self.captures = FakeCaptures(self.clock)
        self._storm_runs = storm_runs
        self._canary_users = canary_users
        self.prometheus_down = False
        self.alertmanager_down = False
        self.silenced = False
        self.silenced_runs: set[str] = set()
        # Who owns the records of runs, by run, where that is seen.
        self.owners: dict[str, int] = {}
        self._old_alerts: list[Alert] = []
        self._old_runs: dict[str, Evidence] = {}
        self._old_until = 0.0
        # What became of each incident, and when, by the clock that does not jump.
        self.states: list[tuple[float, str, State]] = []
        self.cluster_name = ""
        # Runs that fail in another cluster, under the same names; their alerts reach this remediator, too.
        self.foreign: set[str] = set()
        # Runs whose tensor cores work, whatever their records say.
        self.at_work: set[str] = set()
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
        # What drains and resumes nodes, of a store.
        self.drain: Callable[[Store], Callable[[], object]] = lambda _store: lambda: None
        self.restart()

    def restart(self) -> None:
        """A new process on the old database."""
        if self._database is None or not self._remember:
            self.close()
            self._database = SimulatedDatabase(self._folder)
        engine = self.engine
        self.captures.restart()
        self.store = Store(engine, self.clock, self._point)
        self.store.note_message = self._note_state
        self._memory = Memory(self.store, self._database) if self._remember else None
        timers = Timers(self.store, self.clock)
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
        for file in self._folder.glob("remediator.sqlite3*"):
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

    def alerts_now(self) -> list[Alert]:
        """What Prometheus' rules would fire: a failed run, or one that runs without passing its high-water mark."""
        return [alert for cluster in self.clusters for alert in self._alerts_of(cluster)]

    def alerts_of_others(self) -> list[Alert]:
        """Alerts of another cluster about runs, jobs and attempts of the same names."""
        labels = {"alertname": "TrainRunFailed", "failure_mode": "crash", "remediate": "true", "scheduler": "sim"}
        of_runs = [(each, {"run_id": each.run_id, "job_id": each.job_id}) for each in self.clusters]
        return [
            Alert({**labels, **names, "attempt": str(each.attempt), "cluster": "another"}, 1_800_000_000.0)
            for each, names in of_runs
            if each.run_id in self.foreign
        ]

    def see_what_was(self, seconds: float, *, runs: bool = True) -> None:
        """Let Prometheus show for a while what is now: it scrapes and evaluates its rules only every now and then.

        Without `runs` alerts alone are old, as rules are evaluated after a scrape.
        """
        if not self._alerts_are_old:
            self._old_alerts = self.alerts_now()
            if runs:
                self._old_runs = {each.run_id: self.run(each.run_id) for each in self.clusters}
            self._old_until = self.clock.elapsed + seconds

    @property
    def _alerts_are_old(self) -> bool:
        if self.clock.elapsed >= self._old_until:
            self._old_runs.clear()
        return self.clock.elapsed < self._old_until

    @property
    def is_behind(self) -> bool:
        """Whether Prometheus shows runs as they were."""
        return self._alerts_are_old and bool(self._old_runs)

    def catch_up(self) -> None:
        """Let Prometheus show what is."""
        self._old_until = 0.0

    def _note_state(self, connection: sa.Connection, incident: Incident, detail: str, kind: str | None = None) -> None:
        del connection, detail, kind
        self.states.append((self.clock.elapsed, incident.id, incident.state))

    def _alerts_of(self, cluster: Cluster) -> list[Alert]:
        if cluster.run_state == "failed":
            name, mode = "TrainRunFailed", "crash"
        elif cluster.run_state == "running" and cluster.stalls:
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
        return [Alert(labels, since).in_cluster(self.cluster_name)]

    def firing(self) -> Firing:
        """The AlertSource."""
        if self.alertmanager_down:
            return Unknown("Alertmanager is down")
        if self.silenced:
            return []
        shown = self._old_alerts if self._alerts_are_old else self.alerts_now()
        found = [each for each in shown if each.run_id not in self.silenced_runs]
        return [*found, *self.alerts_of_others()]

    def run(self, run_id: str) -> Evidence:
        """One run as Prometheus shows it."""
        if self.prometheus_down:
            return Unknown("Prometheus is down")
        if self.is_behind:
            return self._old_runs[run_id]
        [cluster] = [each for each in self.clusters if each.run_id == run_id]
        now = (cluster.attempt_key, cluster.run_state, cluster.step, cluster.high_water)
        found = ReportedRun(
            run_id,
            cluster.attempt,
            *now,
            policy=self.asked,
            alive=self.alive,
            stall_budget=self.stall_budget,
            checkpoint_step=self.checkpoint_step,
            cluster=self.cluster_name,
            figures=dict(self.figures),
        )
        if run_id not in self.at_work:
            return found
        vitals = {"run:gpu_tensor_active:avg": 0.9}
        return replace(found, vitals=vitals, started=HALTED - 9000, stepped=HALTED, failed=HALTED)

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

    def owner(self, run_id: str) -> int | None:
        return self._owners.get(run_id) if self._owners else super().owner(run_id)


Make = Callable[..., Simulation]
