"""Whether a restart helped: only a newer attempt whose step passes the old high-water mark proves it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from trainwarden_remediator.act.checks import (
    PASSED,
    PENDING,
    WORSE,
    Figures,
    as_json,
    compare,
    figures_of,
    settled,
)
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, RestartProgress, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.timers import Timers

# How long after the end of the new start its failure may take to reach the remediator as an alert.
_ENDED_SECONDS = 120.0
# How long the checks of a run whose step has passed may need more steps.
_SETTLE_SECONDS = 600.0
# Timers of an incident: since when the newer attempt has its highest step, the new start has left the queue, it has
# ended, and the step has passed the old one.
_HIGHEST, _RUNS, _ENDED, _SETTLES, _RIVAL = "highest step", "runs", "ended", "settles", "rival"
# Since when it has a reason to wait, and since when it waits for what does not come by itself.
_QUEUED, _NEVER = "queued", "never starts"
# Reasons of SLURM change from one round of its scheduler to the next.
_NEVER_SECONDS = 120.0
# How long the old attempt may take to end.
_RIVAL_SECONDS = 30.0


@dataclass(frozen=True)
class Verification:
    """The state to move to, why, and which columns change with it."""

    state: State
    detail: str
    changes: dict[str, Any] = field(default_factory=dict)


class Verifier:
    """Verifies restarts.

    Args:
        world: to read from.
        timers: of incidents.
        timeout: seconds from when the new start leaves the scheduler's queue until its step has passed the old one.
        settle: seconds after that for the checks that need more steps.
    """

    def __init__(self, world: World, timers: Timers, timeout: float, settle: float = _SETTLE_SECONDS) -> None:
        self._world = world
        self._timers = timers
        self._timeout = timeout
        self._settle = settle

    def figures(self, run_id: str, attempt_key: str) -> Figures | None:
        """Return how an attempt of a run works; None where that is not known, or it is at another attempt."""
        run = self._world.run(run_id)
        if not isinstance(run, ReportedRun) or run.attempt_key != attempt_key:
            return None
        return figures_of(run, self._world.records.figures(run_id, attempt_key))

    def verify(self, incident: Incident, reading: Reading, seen: RestartProgress) -> Verification | None:
        """Return the verdict on a restart; None while it is too early."""
        run = self._world.run(incident.run_id)
        if isinstance(run, ReportedRun) and (verdict := _old_attempt_advanced(run, incident)):
            return verdict
        newer = run if isinstance(run, ReportedRun) and _newer(run, incident) else None
        rival = self._world.records.rival(incident.run_id, self._world.clock.now()) if newer is not None else None
        if newer is not None and isinstance(rival, str):  # where its record gives no answer, its steps count
            return self._two_live(incident, f"{rival}, beside attempt {newer.attempt}")
        self._timers.forget(incident.id, _RIVAL)
        if newer is not None and (verdict := _of_attempt(newer, incident)):
            if verdict.state is not State.DONE or newer.state != "running":
                return verdict
            if seen is not RestartProgress.STUCK:
                return self._checked(incident, newer, verdict.detail)
            # What came so far was ended since, by a call that took effect late or by a person, and its record stays.
            reason = f"{verdict.detail}, and its job is held since: it does not start until a person releases it"
            return Verification(State.ESCALATED, reason, {"paging": True, "reason": reason})
        if seen is RestartProgress.STUCK:
            # SLURM holds what it can start nowhere: that is no hold of a person.
            is_slurms = isinstance(reading, ScheduledJob) and reading.never_starts
            reason = _never_starts(reading) if is_slurms else "the job is held, and not by us"
            return Verification(State.ESCALATED, reason, {"paging": True, "reason": reason})
        if seen is RestartProgress.GONE and newer is None and isinstance(reading, ScheduledJob):
            # A start given by the remediator that was then ended counts as a failure.
            state = State.FAILED if _is_replaced(reading, incident) else State.ADOPTED
            return Verification(state, f"job {reading.job_id} is {reading.scheduler_state}")
        return self._deadline(incident, reading, newer)

    def _two_live(self, incident: Incident, detail: str) -> Verification | None:
        """Page where the attempt that was ended still lives beside the new one, after a while to end in."""
        if self._timers.elapsed(incident.id, _RIVAL) is None:
            self._timers.wait(incident.id, _RIVAL)
            return Verification(State.VERIFYING, detail)
        if self._timers.wait(incident.id, _RIVAL) < _RIVAL_SECONDS:
            return None
        reason = f"two attempts of the run live: {detail}: end one of them"
        return Verification(State.ESCALATED, reason, {"paging": True, "reason": reason})

    def _checked(self, incident: Incident, newer: ReportedRun, detail: str) -> Verification | None:
        """Compare the new attempt with the old one, once enough is known or the time for it is over."""
        after = figures_of(newer, self._world.records.figures(newer.run_id, newer.attempt_key))
        checks = compare(replace(Figures.from_text(incident.before), checkpoint_step=incident.checkpoint_step), after)
        is_over = self._timers.wait(incident.id, _SETTLES) >= self._settle
        if not is_over and any(each.verdict == PENDING for each in checks):
            return None
        checks = settled(checks)
        worse = [str(each) for each in checks if each.verdict == WORSE]
        known = [str(each) for each in checks if each.verdict == PASSED]
        if worse:
            detail = f"recovered, degraded: {'; '.join(worse)}; {detail}"
        return Verification(State.DONE, "; ".join((detail, *known)), {"checks": as_json(checks)})

    def _deadline(self, incident: Incident, reading: Reading, newer: ReportedRun | None) -> Verification | None:
        ended = newer is None and (
            isinstance(reading, Absent)
            or (
                isinstance(reading, ScheduledJob)
                and _is_replaced(reading, incident)
                and reading.state in (JobState.FAILED, JobState.COMPLETED)
            )
        )
        rises = newer is not None and self._rises(incident, newer)
        if self._is_over(incident) and not rises:
            if newer is not None:
                return Verification(State.FAILED, "the step did not pass the old high-water mark in time")
            reason = "restarted, but no new attempt was seen"
            return Verification(State.ESCALATED, reason, {"paging": True, "reason": reason})
        # Where the scheduler does not answer the queue is unknown: that must come to an end, too.
        left_the_queue = newer is not None or not (
            isinstance(reading, ScheduledJob) and reading.state is JobState.WAITING
        )
        if not left_the_queue and isinstance(reading, ScheduledJob):
            return self._queued(incident, reading)
        self._timers.forget(incident.id, _QUEUED, _NEVER)
        kind = _ENDED if ended else _RUNS
        if not left_the_queue or self._timers.elapsed(incident.id, kind) is not None:
            return None
        self._timers.restart(incident.id, kind)
        return Verification(State.VERIFYING, _since_when(reading, ended=ended))

    def _queued(self, incident: Incident, job: ScheduledJob) -> Verification | None:
        """Note why the new start waits, each time that changes; page where it waits for what does not come."""
        if not job.never_starts:
            self._timers.forget(incident.id, _NEVER)
        elif self._timers.wait(incident.id, _NEVER) >= _NEVER_SECONDS:
            reason = _never_starts(job)
            return Verification(State.ESCALATED, reason, {"paging": True, "reason": reason})
        if job.waits_because in ("", self._timers.detail(incident.id, _QUEUED)):
            return None
        self._timers.wait(incident.id, _QUEUED, job.waits_because)
        return Verification(State.VERIFYING, f"the new start waits in the queue: {job.waits_because}")

    def _is_over(self, incident: Incident) -> bool:
        """Return whether the new start has had its time: by measured seconds, which no jump of a clock changes."""
        runs, ended = (self._timers.elapsed(incident.id, kind) or 0.0 for kind in (_RUNS, _ENDED))
        return runs >= self._timeout or ended >= min(_ENDED_SECONDS, self._timeout)

    def _rises(self, incident: Incident, newer: ReportedRun) -> bool:
        """Return whether the new attempt gained a step within the timeout: catching up may take longer than that."""
        step, highest = newer.step or 0.0, self._timers.detail(incident.id, _HIGHEST)
        if highest is None or step > float(highest):
            self._timers.restart(incident.id, _HIGHEST, detail=repr(step))
        return (self._timers.elapsed(incident.id, _HIGHEST) or 0.0) < self._timeout


def _is_replaced(job: ScheduledJob, incident: Incident) -> bool:
    """Return whether the job is at a later start than that of the incident, or another job."""
    return job.job_id != incident.job_id or job.generation > incident.generation


def _old_attempt_advanced(run: ReportedRun, incident: Incident) -> Verification | None:
    """Raise the mark to pass while the old attempt still advances, until its last process is gone."""
    if run.attempt_key != incident.attempt_key or run.high_water is None:
        return None
    if incident.step_before is not None and run.high_water <= incident.step_before:
        return None
    detail = f"the old attempt reached step {run.high_water:g} before it ended"
    return Verification(State.VERIFYING, detail, {"step_before": run.high_water})


def _never_starts(job: Reading) -> str:
    assert isinstance(job, ScheduledJob)  # noqa: S101  # nothing else has a reason to wait
    avoided = ", ".join((job.excluded_nodes or ())[:10])
    reason = f"the new start of job {job.job_id} does not begin by itself: {job.waits_because}"
    return f"{reason}; it avoids {avoided}" if avoided else reason


def _since_when(reading: Reading, *, ended: bool) -> str:
    if ended:
        return "the new start has ended"
    return "the scheduler does not answer" if isinstance(reading, Unknown) else "the new start is running"


def _newer(run: ReportedRun, incident: Incident) -> bool:
    return run.attempt_key != incident.attempt_key and run.attempt > (incident.attempt or 0)


def _of_attempt(run: ReportedRun, incident: Incident) -> Verification | None:
    if run.state == "succeeded":
        return Verification(State.DONE, f"attempt {run.attempt} finished the run")
    if run.state in ("failed", "cancelled"):
        return Verification(State.FAILED, f"attempt {run.attempt} is {run.state}")
    before = incident.step_before
    if run.state == "running" and run.step is not None and (before is None or run.step > before):
        passed = "" if before is None else f", past {before:g}"
        return Verification(State.DONE, f"attempt {run.attempt} runs at step {run.step:g}{passed}")
    return None
