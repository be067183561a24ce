"""Ends pages that are no longer needed. No page ends by its age."""

from __future__ import annotations

from trainwarden_remediator.act.sweep import ALERT as HELD
from trainwarden_remediator.drivers.driver import JobState, Reading, ScheduledJob, Shape
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import WAITING_RUNS, Incident, parse_key
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store


class Relief:
    """Ends the page of an incident where its run has recovered, was replaced by a newer attempt, or was ended."""

    def __init__(self, world: World, store: Store) -> None:
        self._world = world
        self._store = store

    def end_pages(self) -> None:
        """End what can be ended now; what is unknown ends no page."""
        for incident in self._store.escalations():
            if reason := self._reason(incident):
                self._store.move(incident, incident.state, reason, paging=False)

    def _reason(self, incident: Incident) -> str | None:
        if incident.alert == WAITING_RUNS:
            return None if self._store.is_awaited(incident.id) else "none of its runs waits any more"
        if self._world.records.rival(incident.run_id, self._world.clock.now()):
            return None  # a newer attempt has not taken over while an older one lives beside it, or may do so
        driver = self._world.drivers.get(incident.scheduler or "")
        job = driver.job(incident.job_id) if driver and incident.job_id and incident.attempt_key else None
        if _may_be_held(incident, job):
            return None
        run = self._world.run(incident.run_id) if incident.attempt is not None else None
        if isinstance(run, ReportedRun) and (reason := _of_run(incident, run)):
            return reason
        if not isinstance(job, ScheduledJob) or job.run_id != incident.run_id or job.generation < incident.generation:
            return None
        if job.state is JobState.CANCELLED and self._may_have_cancelled(incident):
            return None
        over = job.state in (JobState.CANCELLED, JobState.COMPLETED)
        return f"job {job.job_id} is {job.scheduler_state}" if over else None

    def _may_have_cancelled(self, incident: Incident) -> bool:
        """Return whether a call of the remediator may have cancelled the job, for this incident or another one."""
        of_job = self._store.of_job(incident.scheduler or "", incident.job_id or "")
        return any(each.calls and each.shape and Shape(each.shape).gives_new_job for each in (incident, *of_job))


def _may_be_held(incident: Incident, job: Reading | None) -> bool:
    """Return whether nothing trains for the run although its record shows a newer attempt: that start was forgotten."""
    if isinstance(job, ScheduledJob):
        return job.run_id == incident.run_id and job.state is JobState.HELD and job.held_by_requeue
    is_given = incident.alert == HELD or incident.committed is not None
    return is_given and isinstance(job, Unknown)


def _of_run(incident: Incident, run: ReportedRun) -> str | None:
    if _is_newer(incident, run):
        return f"attempt {run.attempt} has taken over"
    same = run.attempt == incident.attempt if incident.attempt_key is None else run.attempt_key == incident.attempt_key
    if not same:
        return None  # of an older attempt, while the exporter of the newer one is away
    if run.state in ("succeeded", "cancelled"):
        return f"the run is {run.state}"
    before = incident.step_before
    if run.state == "running" and before is not None and run.high_water is not None and run.high_water > before:
        return f"the run goes on by itself: step {run.high_water:g} after {before:g}"
    return None


def _is_newer(incident: Incident, run: ReportedRun) -> bool:
    key, present = parse_key(incident.attempt_key or ""), parse_key(run.attempt_key)
    if present is None:
        return False
    if key is not None and (key.scheduler, key.job_id) == (present.scheduler, present.job_id):
        return present.generation > key.generation
    return incident.attempt is not None and run.attempt > incident.attempt
