"""The nodes that a restarted job avoids: set before its release, kept by the job, and taken back when they are over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    Driver,
    JobState,
    RestartTarget,
    ScheduledJob,
    Shape,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.calls import Call
from trainwarden_remediator.store.exclusions import Exclusion
from trainwarden_remediator.store.store import Store


class Exclusions:
    """Adds nodes to those that a job avoids anyway, and removes no others than it has added."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def target(self, incident: Incident, driver: Driver, target: RestartTarget) -> RestartTarget:
        """Return the target with the nodes that its start need not avoid any more.

        Notes first which nodes it is to avoid that the job does not avoid already: those are taken back some day.
        """
        avoid, hours = incident.excluded, incident.exclude_hours
        job_id = target.successor or target.job_id
        noted = self._inherited(driver, target, job_id)
        over = {node for node, each in noted.items() if self._is_over(each.until)}
        job = driver.job(job_id)
        if avoid and target.shape is not Shape.ONE_CALL and isinstance(job, ScheduledJob):
            ours = {
                node: Exclusion(incident.id, None if hours is None else at + hours * 3600)
                for node, at in avoid.items()
                if node in noted or node not in (job.excluded_nodes or ())
            }
            self._store.exclusions.note(driver.name, job_id, ours)
        return replace(target, readmit_nodes=tuple(sorted(over.difference(avoid))))

    def _inherited(self, driver: Driver, target: RestartTarget, job_id: str) -> dict[str, Exclusion]:
        """Return what is noted of a job; a new one avoids what the job avoided that it comes after."""
        noted = self._store.exclusions.of_scheduler(driver.name)
        present, job = noted.get(job_id, {}), driver.job(job_id)
        before = noted.get(target.job_id, {}) if isinstance(job, ScheduledJob) and target.successor else {}
        avoided = job.excluded_nodes or () if isinstance(job, ScheduledJob) else ()
        new = {node: each for node, each in before.items() if node in avoided and node not in present}
        if new:
            self._store.exclusions.note(driver.name, job_id, new)
        return {**present, **new}

    def end(self, driver: Driver, jobs: Iterable[ScheduledJob]) -> None:
        """Take back what is over, of jobs that wait: SLURM changes no other. Those that are gone are forgotten.

        `jobs` are those that are marked with a run; another one may be there all the same, and is read by itself.
        """
        noted = self._store.exclusions.of_scheduler(driver.name)
        listed = {job.job_id: job for job in jobs} if noted else {}
        for job_id, nodes in noted.items():
            job = listed.get(job_id) or driver.job(job_id)
            if isinstance(job, Unknown):
                continue
            if isinstance(job, Absent) or job.state in (JobState.CANCELLED, JobState.COMPLETED):
                self._store.exclusions.forget(driver.name, job_id, nodes)
                continue
            if job.run_id is None:
                continue  # its mark was taken away: it is not certain whose job it is
            over = tuple(node for node, each in nodes.items() if self._is_over(each.until))
            present = tuple(node for node in over if node in (job.excluded_nodes or ()))
            if present and job.state is JobState.WAITING and job.refusal is None:
                self._take_back(driver, job, present, nodes[present[0]].incident_id)
            elif over and not present and job.excluded_nodes is not None:
                self._store.exclusions.forget(driver.name, job_id, over)

    def _take_back(self, driver: Driver, job: ScheduledJob, nodes: tuple[str, ...], incident_id: str) -> None:
        reason = "the exclusion of its nodes is over"
        target = RestartTarget(incident_id, job.run_id or "", job.job_id, job.generation, reason, readmit_nodes=nodes)
        now = self._clock.now()
        call = Call(incident_id, driver.name, job.job_id, job.generation, "exclude", now)
        number = self._store.calls.begin(call)
        answer = driver.exclude(target)
        self._store.calls.end(number, answer.outcome.value)
        if answer.outcome is CallOutcome.ACCEPTED:
            self._store.exclusions.forget(driver.name, job.job_id, nodes)

    def _is_over(self, until: float | None) -> bool:
        return until is not None and self._clock.now() >= until
