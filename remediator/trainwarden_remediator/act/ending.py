"""The first half of a restart: ends the attempt, until the scheduler shows that the next start can be given."""

from __future__ import annotations

from trainwarden_remediator.act.act import Actor, Answer, Forgotten
from trainwarden_remediator.act.calls import Calls, Pace
from trainwarden_remediator.act.restart import ENDS, Restart
from trainwarden_remediator.act.starting import Starting
from trainwarden_remediator.act.transitions import Transitions
from trainwarden_remediator.decide.verdict import Refuse, Wait
from trainwarden_remediator.drivers.driver import CallOutcome, JobState, RestartProgress, ScheduledJob, Shape
from trainwarden_remediator.examine.objections import Recheck
from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.store.doubt import Doubt
from trainwarden_remediator.store.timers import Timers

MAX_CALLS = 5


class Ending:
    """Advances incidents that are PREPARING or IN_DOUBT. `step` returns whether the incident has changed."""

    def __init__(
        self,
        transitions: Transitions,
        timers: Timers,
        recheck: Recheck,
        actor: Actor,
        calls: Calls[Answer],
        doubt: Doubt,
        pace: Pace,
        starting: Starting,
    ) -> None:
        self._transitions = transitions
        self._timers = timers
        self._recheck = recheck
        self._actor = actor
        self._calls = calls
        self._doubt = doubt
        self._pace = pace
        self._starting = starting

    def step(self, restart: Restart) -> bool:
        """Make the call that ends the attempt, or see what has come of it."""
        incident, target = restart.incident, restart.target
        if incident.state is State.PREPARING and self._doubt.unanswered(incident):
            self._doubt.begin(incident)
            detail = "the remediator ended before it had the answer of the call"
            self._transitions.move(incident, State.IN_DOUBT, detail)
            return True
        seen = restart.progress
        if seen is RestartProgress.READY and target.shape is Shape.REQUEUE and not incident.calls:
            # It was held before any call of the remediator: that is a user's hold.
            return self._transitions.leave(restart, RestartProgress.STUCK)
        if seen is RestartProgress.READY:
            self._transitions.move(incident, State.PREPARED, seen.value)
        elif seen is RestartProgress.UNTOUCHED:
            return self._call(restart)
        elif seen is RestartProgress.UNKNOWN:
            if incident.state is State.IN_DOUBT or not incident.calls:
                return self._transitions.wait(incident, seen.value)
            self._transitions.move(incident, State.IN_DOUBT, seen.value)
        elif seen is RestartProgress.BUSY:
            if target.ended and target.shape.gives_new_job:
                self._timers.wait(incident.id, ENDS)  # that may take longer than the window of doubt
            return self._leave_unstarted(restart) or self._transitions.wait(incident, seen.value)
        elif self._starting.came_late(restart):
            return self._starting.undo(restart)
        elif seen is not RestartProgress.STUCK and self._doubt.may_come_late(incident):
            return self._transitions.wait(incident, f"{seen.value}, and a call may still take effect on it")
        else:
            return self._transitions.leave(restart, seen)
        return True

    def _leave_unstarted(self, restart: Restart) -> bool:
        """Leave a job that was to be ended by a call, and that the scheduler has not started by now; return whether."""
        incident, job, target = restart.incident, restart.job, restart.target
        if not isinstance(job, ScheduledJob) or not incident.calls or self._doubt.lasts(incident):
            return False
        if (job.run_id, job.generation) != (target.run_id, target.generation):
            return False
        if job.state is JobState.HELD:
            return self._transitions.escalate(
                incident,
                f"the scheduler shows job {job.job_id} held under the restart count {job.generation}, whose start was "
                "to be ended: it has forgotten that start. Nothing is started by the remediator: make sure that no "
                f"process of the run lives, and release it (scontrol release {job.job_id})",
            )
        if job.state is JobState.WAITING:
            self._transitions.move(incident, State.ADOPTED, "the job waits in the queue again, and not by us")
            return True
        return False

    def _call(self, restart: Restart) -> bool:
        incident = restart.incident
        if incident.calls and self._doubt.lasts(incident):
            return self._transitions.wait(incident, "a call may still take effect")
        self._timers.forget(incident.id, ENDS)
        if incident.calls >= MAX_CALLS:
            reason = f"the scheduler did not end the attempt after {incident.calls} calls"
            return self._transitions.escalate(incident, reason)
        jobs = restart.driver.jobs()
        verdict = self._recheck.against(incident)
        if verdict is not None:
            return self._transitions.obey(incident, verdict)
        if not self._calls.room():
            return self._transitions.wait(incident, "other calls are under way (--max-actions)")
        if self._pace.is_too_early(incident):
            return self._transitions.wait(incident, "something spoke against the call when it was to be made")
        self._doubt.begin(incident)
        number = incident.calls + 1
        incident = self._transitions.move(incident, State.PREPARING, f"call {number}", calls=number)
        self._calls.start(incident.id, lambda: self._actor.prepare(incident, restart.target, jobs))
        return True

    def answered(self, incident: Incident, answer: Answer) -> None:
        """Go on by the answer of the call."""
        if answer.withheld is not None:
            self._withheld(incident, answer.withheld)
            return
        result = answer.result
        if result.outcome is CallOutcome.UNCLEAR:
            self._doubt.begin(incident)
        else:
            self._doubt.answered(incident)
        if result.outcome is CallOutcome.ACCEPTED:
            self._transitions.move(incident, State.PREPARING, result.detail)
        elif result.outcome is CallOutcome.UNCLEAR or answer.after is not RestartProgress.UNTOUCHED:
            self._transitions.move(incident, State.IN_DOUBT, result.detail)
        else:
            self._transitions.escalate(incident, f"the scheduler refused: {result.detail}")

    def _withheld(self, incident: Incident, verdict: Wait | Refuse) -> None:
        """Take back that a call was made: something has spoken against it right before."""
        self._doubt.end(incident)
        self._pace.called(incident)
        detail = f"not called: {verdict.reason}"
        incident = self._transitions.move(incident, State.PREPARING, detail, calls=incident.calls - 1)
        if isinstance(verdict, Forgotten):
            self._transitions.escalate(incident, verdict.reason)
        elif isinstance(verdict, Refuse):
            self._transitions.withdraw(incident, verdict)
