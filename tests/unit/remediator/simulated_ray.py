"""The driver `ray` in the world of simulation.py: its requests reach a Ray around the truth of that world's jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tests.unit.remediator.fake_ray import END, FakeRay
from tests.unit.remediator.real_driver import RealDriver
from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, Cluster
from trainwarden.clients.http import PathAnswer
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden_remediator.drivers.driver import CallResult, JobState, RestartTarget, ScheduledJob, Shape
from trainwarden_remediator.drivers.ray import RayDriver
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.incidents.incident import Incident, State

_NO_ANSWER = PathAnswer(0, b"", "timeout: no complete answer")
_STATUS = {
    JobState.WAITING: "PENDING",
    JobState.HELD: "PENDING",
    JobState.CANCELLED: "STOPPED",
    JobState.COMPLETED: "SUCCEEDED",
    JobState.FAILED: "FAILED",
}


class RayOf(FakeRay):
    """A Ray whose jobs are those of some clusters.

    Args:
        clusters: one for each run.
        driver: whose faults its requests have.
    """

    def __init__(self, clusters: Sequence[Cluster], driver: SimulatedRayDriver) -> None:
        super().__init__()
        self._clusters, self._driver = clusters, driver
        self._late = False
        for cluster in clusters:
            self.add(cluster.job_id, cluster.run_id)
        self.on_stop, self.on_start = self._stopped, self._started

    def cluster_of(self, job_id: str) -> Cluster:
        """Return the run of a job."""
        return next(each for each in self._clusters if job_id in each.ids())

    def look(self) -> None:
        """Take over how the jobs are. One that was stopped runs on for a while, and its actors for another."""
        self.living.clear()
        for job_id in set(self.jobs) - {each for cluster in self._clusters for each in cluster.ids()}:
            del self.jobs[job_id]
        for cluster in self._clusters:
            for job_id in cluster.ids():
                state = cluster.shown(job_id).state
                is_ending = state is JobState.ENDING and cluster.ending < 2
                status = "STOPPED" if is_ending else _STATUS.get(state, "RUNNING")
                if is_ending:
                    self.living.add(job_id)
                over = status not in {"PENDING", "RUNNING"}
                self.jobs[job_id] |= {"status": status, "end_time": END if over else None}

    def get(self, paths: Sequence[str]) -> list[PathAnswer]:
        driver = self._driver
        self.is_down, self.session = driver.down, f"session_{driver.boots}"
        if not driver.is_behind:
            self.look()
        return super().get(paths)

    def send(self, method: str, path: str, body: bytes | None = None) -> PathAnswer:
        driver = self._driver
        fault = driver.faults.pop(0) if driver.faults else "none"
        stops = path.endswith("/stop")
        driver.calls.append(f"{'prepare' if stops else 'commit'}: {fault}")
        cluster = self.cluster_of(path.split("/")[-2] if stops else _replaced(body))
        driver.check(cluster, stops=stops)
        if driver.down or fault == "dropped":
            return _NO_ANSWER
        if fault == "refused":
            return PathAnswer(403, b"", "")
        if fault == "said yes, did nothing":
            return PathAnswer(200, b"{}", "")

        def take_effect(*, late: bool = True) -> PathAnswer:
            self.look()
            self._late = late
            return super(RayOf, self).send(method, path, body)

        if fault in ("late", "very late"):
            seconds = driver.late_seconds if fault == "late" else 1.5 * DOUBT_SECONDS
            cluster.late.append((cluster.clock.elapsed + seconds, lambda: _ignored(take_effect())))
            return _NO_ANSWER
        answer = take_effect(late=driver.is_behind)
        if fault == "twice":
            take_effect(late=driver.is_behind)
        return _NO_ANSWER if fault == "lost reply" else answer

    def _stopped(self, job_id: str) -> None:
        self.cluster_of(job_id).stop(job_id, late=self._late)

    def _started(self, job_id: str) -> None:
        metadata = self.jobs[job_id]["metadata"]
        cluster = self.cluster_of(metadata["trainwarden_replaces"])
        cluster.submit(metadata["trainwarden_incident"], metadata["trainwarden_replaces"], job_id)


class SimulatedRayDriver(RealDriver):
    """The real driver; what `FakeDriver` does to calls happens to its requests."""

    def __init__(self, clusters: Sequence[Cluster], durable: Callable[[str], Incident | None]) -> None:
        self._ray = RayOf(clusters, self)
        super().__init__(clusters, durable, RayDriver(RayJobs(self._ray), RayTemplates(None), None, lambda: END / 1000))
        self.shape = Shape.SUBMIT
        self._target: RestartTarget | None = None

    def answer_with_what_was(self, seconds: float) -> None:
        self._ray.look()
        self._old_until = self.clock.elapsed + seconds

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        return self._real.obstacles(job)

    def exclude(self, target: RestartTarget) -> CallResult:
        return self._real.exclude(target)

    def discard(self, target: RestartTarget) -> CallResult:
        return self._real.discard(target)

    def prepare(self, target: RestartTarget) -> CallResult:
        self._target = target
        return self._real.prepare(target)

    def commit(self, target: RestartTarget) -> CallResult:
        self._target = target
        self.environment, self.excluded = dict(target.environment), target.exclude_nodes
        return self._real.commit(target)

    def check(self, cluster: Cluster, *, stops: bool) -> None:
        """Note what a request must not be, before anything becomes of it."""
        target = self._target
        assert target is not None
        if not stops:
            self._check_intent("commit", target, (State.COMMITTED, State.VERIFYING))
            return
        self._check_intent("prepare", target, (State.PREPARING,))
        self._check_allowed(cluster, target)
        asked = self.asked_to_end.get((target.job_id, 0))
        if asked is not None and self.clock.elapsed - asked < DOUBT_SECONDS:
            cluster.violations.append("L3: called again while the earlier call may still take effect")
        self.asked_to_end[target.job_id, 0] = cluster.stopped = self.clock.elapsed


def _ignored(_answer: PathAnswer) -> None:
    """Nobody waits for an answer that comes so late."""


def _replaced(body: bytes | None) -> str:
    return str(json.loads(body or b"{}")["metadata"]["trainwarden_replaces"])
