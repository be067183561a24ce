"""The driver of the scheduler of a simulation. It can lose replies, apply calls late or twice, drop them or be down."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, Cluster
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
from trainwarden_remediator.incidents.incident import Incident, State


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
        # When the start had begun that such a call was about, by incident and job.
        self.asked_start: dict[tuple[str, str], float | None] = {}
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
        behind, start = self.is_behind, (target.incident, target.job_id)
        if self.asked_start.get(start, cluster.started) != cluster.started and not behind:
            cluster.violations.append("S3: a start that was begun again under the same count was ended")

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

        began = cluster.started
        result = self._call("prepare", cluster, apply, target)
        if result.outcome is not CallOutcome.REFUSED:
            self.asked_to_end[target.job_id, target.generation] = self.clock.elapsed
            self.asked_start.setdefault(start, began)
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
                cluster.release_job(target.successor, late=late or behind or not known)
                return CallOutcome.ACCEPTED
            if self.two_phase:
                cluster.release(late=late or behind)
                return CallOutcome.ACCEPTED
            return cluster.launcher_restart(target.incident, target.generation, late=self.clock.elapsed >= doubted)

        doubted, known = self.clock.elapsed + DOUBT_SECONDS, target.incident in cluster.accepted
        result = self._call("submit" if submits else "commit", cluster, apply, target)
        note_accepted(cluster, target, result)
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
        if fault.endswith("then down"):
            self.down = True
        if fault.startswith("lost reply"):
            return CallResult(CallOutcome.UNCLEAR, "no answer")
        return CallResult(outcome, "ok")


def note_accepted(cluster: Cluster, target: RestartTarget, result: CallResult) -> None:
    """Note that a job was released by a call whose answer is clear."""
    if result.outcome is CallOutcome.ACCEPTED and target.successor:
        cluster.accepted.add(target.incident)
