"""Did the restart help? Only a newer attempt whose step passes the old high-water mark says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwarden_remediator.drivers.driver import Absent, Job, Progress, Reading, Standing
from trainwarden_remediator.evidence import Run
from trainwarden_remediator.incident import Incident, State
from trainwarden_remediator.world import World

# How long after the end of the new start its failure may take to show up as an alert of a new attempt.
_ENDED_SECONDS = 120.0


@dataclass(frozen=True)
class Verdict:
    """The state to move to, why, and which columns change with it."""

    state: State
    detail: str
    changes: dict[str, Any] = field(default_factory=dict)


class Verifier:
    """Judges restarts that were given. `timeout` counts from when the new start leaves the scheduler's queue."""

    def __init__(self, world: World, timeout: float) -> None:
        self._world = world
        self._timeout = timeout

    def verify(self, incident: Incident, reading: Reading, seen: Progress) -> Verdict | None:
        """None while it is too early to say."""
        run = self._world.runs.run(incident.run_id)
        newer = run if isinstance(run, Run) and _newer(run, incident) else None
        if newer is not None and (verdict := _of_attempt(newer, incident)):
            return verdict
        if seen is Progress.STUCK:
            return Verdict(State.ESCALATED, seen.value, {"paging": True, "reason": "the job is held, and not by us"})
        if seen is Progress.GONE and newer is None and isinstance(reading, Job):
            # A start that was ours and was then ended counts as one that did not help.
            state = State.FAILED if reading.generation > incident.generation else State.ADOPTED
            return Verdict(state, f"job {reading.job_id} is {reading.state}")
        return self._deadline(incident, reading, newer)

    def _deadline(self, incident: Incident, reading: Reading, newer: Run | None) -> Verdict | None:
        now = self._world.clock.now()
        if incident.deadline is not None and now >= incident.deadline:
            if newer is not None:
                return Verdict(State.FAILED, "the step did not pass the old high-water mark in time")
            reason = "restarted, but no new attempt was seen"
            return Verdict(State.ESCALATED, reason, {"paging": True, "reason": reason})
        latest = now + self._timeout
        ended = isinstance(reading, Absent) or (
            isinstance(reading, Job) and reading.standing in (Standing.FAILED, Standing.COMPLETED)
        )
        if ended and newer is None:
            latest = now + _ENDED_SECONDS
        left_the_queue = (
            newer is not None or ended or (isinstance(reading, Job) and reading.standing is not Standing.WAITING)
        )
        if left_the_queue and (incident.deadline is None or latest < incident.deadline):
            return Verdict(
                State.VERIFYING,
                "the new start has ended" if ended else "the new start is running",
                {"deadline": latest},
            )
        return None


def _newer(run: Run, incident: Incident) -> bool:
    return run.attempt_key != incident.attempt_key and run.attempt > (incident.attempt or 0)


def _of_attempt(run: Run, incident: Incident) -> Verdict | None:
    if run.state == "succeeded":
        return Verdict(State.DONE, f"attempt {run.attempt} finished the run")
    if run.state in ("failed", "cancelled"):
        return Verdict(State.FAILED, f"attempt {run.attempt} is {run.state}")
    before = incident.step_before
    if run.state == "running" and run.step is not None and (before is None or run.step > before):
        passed = "" if before is None else f", past {before:g}"
        return Verdict(State.DONE, f"attempt {run.attempt} runs at step {run.step:g}{passed}")
    return None
