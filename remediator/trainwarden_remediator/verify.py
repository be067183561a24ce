"""Whether a restart helped: only a newer attempt whose step passes the old high-water mark proves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, RestartProgress, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.evidence import ReportedRun
from trainwarden_remediator.incident import Incident, State
from trainwarden_remediator.world import World

# How long after the end of the new start its failure may take to reach the remediator as an alert.
_ENDED_SECONDS = 120.0


@dataclass(frozen=True)
class Verification:
    """The state to move to, why, and which columns change with it."""

    state: State
    detail: str
    changes: dict[str, Any] = field(default_factory=dict)


class Verifier:
    """Verifies restarts. `timeout` counts from when the new start leaves the scheduler's queue."""

    def __init__(self, world: World, timeout: float) -> None:
        self._world = world
        self._timeout = timeout
        self._rising: dict[
            str, tuple[float, float]
        ] = {}  # by incident: the newer attempt's highest step, and since when

    def verify(self, incident: Incident, reading: Reading, seen: RestartProgress) -> Verification | None:
        """Return the verdict on a restart; None while it is too early."""
        run = self._world.runs.run(incident.run_id)
        if isinstance(run, ReportedRun) and (verdict := _old_attempt_advanced(run, incident)):
            return verdict
        newer = run if isinstance(run, ReportedRun) and _newer(run, incident) else None
        if newer is not None and (verdict := _of_attempt(newer, incident)):
            return verdict
        if seen is RestartProgress.STUCK:
            return Verification(
                State.ESCALATED, seen.value, {"paging": True, "reason": "the job is held, and not by us"}
            )
        if seen is RestartProgress.GONE and newer is None and isinstance(reading, ScheduledJob):
            # A start given by the remediator that was then ended counts as a failure.
            state = State.FAILED if reading.generation > incident.generation else State.ADOPTED
            return Verification(state, f"job {reading.job_id} is {reading.scheduler_state}")
        return self._deadline(incident, reading, newer)

    def _deadline(self, incident: Incident, reading: Reading, newer: ReportedRun | None) -> Verification | None:
        now = self._world.clock.now()
        rises = newer is not None and self._rises(incident, newer)
        if incident.deadline is not None and now >= incident.deadline and not rises:
            if newer is not None:
                return Verification(State.FAILED, "the step did not pass the old high-water mark in time")
            reason = "restarted, but no new attempt was seen"
            return Verification(State.ESCALATED, reason, {"paging": True, "reason": reason})
        latest = now + self._timeout
        ended = isinstance(reading, Absent) or (
            isinstance(reading, ScheduledJob)
            and reading.generation > incident.generation
            and reading.state in (JobState.FAILED, JobState.COMPLETED)
        )
        if ended and newer is None:
            latest = now + _ENDED_SECONDS
        # Where the scheduler does not answer the queue is unknown: that must come to an end, too.
        left_the_queue = newer is not None or not (
            isinstance(reading, ScheduledJob) and reading.state is JobState.WAITING
        )
        if left_the_queue and (incident.deadline is None or latest < incident.deadline):
            return Verification(
                State.VERIFYING,
                _since_when(reading, ended=ended),
                {"deadline": latest},
            )
        return None

    def _rises(self, incident: Incident, newer: ReportedRun) -> bool:
        """Return whether the new attempt gained a step within the timeout: catching up may take longer than that."""
        now, step = self._world.clock.monotonic(), newer.step or 0.0
        highest, since = self._rising.get(incident.id, (float("-inf"), now))
        if step > highest:
            highest, since = step, now
        self._rising[incident.id] = highest, since
        return now - since < self._timeout


def _old_attempt_advanced(run: ReportedRun, incident: Incident) -> Verification | None:
    """Raise the mark to pass while the old attempt still advances, until its last process is gone."""
    if run.attempt_key != incident.attempt_key or run.high_water is None:
        return None
    if incident.step_before is not None and run.high_water <= incident.step_before:
        return None
    detail = f"the old attempt reached step {run.high_water:g} before it ended"
    return Verification(State.VERIFYING, detail, {"step_before": run.high_water})


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
