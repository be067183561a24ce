"""The second half of a restart: gives the next start, once, and sees that the scheduler shows it."""

from __future__ import annotations

import logging

from trainwarden_remediator.act.act import Actor, Answer, Forgotten, decides_to_end, submits_held
from trainwarden_remediator.act.calls import Calls, Pace
from trainwarden_remediator.act.exclusions import Exclusions
from trainwarden_remediator.act.restart import Restart
from trainwarden_remediator.act.transitions import Transitions
from trainwarden_remediator.decide.verdict import Refuse, Wait
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    Driver,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    Shape,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import Recheck, successor
from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.notify.outbox import RESUBMITTED
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.doubt import Doubt
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

# Kinds of timers of an incident.
_MISSING, _HELD_AGAIN = "missing", "held again"


class Starting:
    """Advances incidents that are PREPARED or COMMITTED. `step` returns whether the incident has changed.

    `reading_age` is by how many seconds a reading of the scheduler may be older than a job or a call.
    """

    def __init__(
        self,
        transitions: Transitions,
        timers: Timers,
        recheck: Recheck,
        actor: Actor,
        calls: Calls[Answer],
        doubt: Doubt,
        pace: Pace,
        exclusions: Exclusions,
        clock: Clock,
        reading_age: float,
    ) -> None:
        self._transitions = transitions
        self._timers = timers
        self._recheck = recheck
        self._actor = actor
        self._calls = calls
        self._doubt = doubt
        self._pace = pace
        self._exclusions = exclusions
        self._clock = clock
        self._reading_age = reading_age

    def step(self, restart: Restart) -> bool:
        """Commit that the next start is given, give it, or see what has come of that."""
        return self._commit(restart) if restart.incident.state is State.PREPARED else self._start(restart)

    def _commit(self, restart: Restart) -> bool:
        incident, seen = restart.incident, restart.progress
        if seen is RestartProgress.READY:
            detail = "the next start may be given"
            self._transitions.move(incident, State.COMMITTED, detail, committed=self._clock.now())
        elif seen is RestartProgress.UNTOUCHED:
            detail = "the scheduler has forgotten that it ended the attempt"
            self._transitions.move(incident, State.IN_DOUBT, detail)
        elif seen in (RestartProgress.UNKNOWN, RestartProgress.BUSY):
            return self._transitions.wait(incident, seen.value)
        else:
            return self._transitions.leave(restart, seen)
        return True

    def _start(self, restart: Restart) -> bool:
        incident, target, seen, new = restart.incident, restart.target, restart.progress, restart.successor
        if new is not None and new.job_id != target.successor:
            detail = _comes_back(incident, new.job_id)
            self._transitions.move(incident, State.COMMITTED, detail, kind=RESUBMITTED, successor=new.job_id)
        elif seen is RestartProgress.READY:
            return self._give(restart)
        elif restart.went_back(seen):
            return self.step_back(restart)
        elif seen is RestartProgress.STARTED and (target.shape is not Shape.ONE_CALL or restart.is_token_seen):
            self._transitions.move(incident, State.VERIFYING, seen.value)
        elif self._lost_submission(restart, seen, new):
            detail = f"the scheduler has forgotten job {target.successor}, which was held"
            self._transitions.move(incident, State.COMMITTED, detail, successor=None)
        elif seen is RestartProgress.GONE and target.successor and new is None:
            # A reading may be older than the job; a person's cancel is seen as long as SLURM remembers it.
            if self._timers.wait(incident.id, _MISSING) < self._reading_age:
                return self._transitions.wait(incident, f"job {target.successor} is not listed")
            return self._transitions.escalate(
                incident,
                f"job {target.job_id} was ended, and job {target.successor}, which was to be its next start, is not "
                "there any more: it is unknown why. Nothing is started again by the remediator",
            )
        elif seen in (RestartProgress.UNKNOWN, RestartProgress.BUSY, RestartProgress.UNTOUCHED):
            return self._transitions.wait(incident, seen.value)
        else:
            return self._transitions.leave(restart, seen)
        return True

    def _lost_submission(self, restart: Restart, seen: RestartProgress, new: ScheduledJob | None) -> bool:
        """Return whether the controller was started again and has lost a job that it held, and that never started."""
        target = restart.target
        if target.shape is not Shape.RESUBMIT or seen is not RestartProgress.GONE or not target.successor:
            return False
        if new is not None or self._actor.has_committed(restart.incident):
            return False
        return self._actor.was_forgotten(restart.driver, target)

    def step_back(self, restart: Restart) -> bool:
        """End the attempt anew if no start was given since; else page: it is unknown what lives under which count."""
        incident, target = restart.incident, restart.target
        if incident.state is State.COMMITTED and not self._actor.has_committed(incident):
            # A new job that is there all the same is found by its token.
            forgotten = "the scheduler has forgotten that it ended the attempt"
            self._transitions.move(incident, State.IN_DOUBT, forgotten, successor=None)
            return True
        if target.shape.gives_new_job:
            return self._transitions.escalate(
                incident,
                f"the scheduler shows job {target.job_id} running again, after its next start, job "
                f"{target.successor or '(unknown)'}, was given. Nothing is started or ended by the remediator: look "
                "which one trains, and end the other",
            )
        return self._transitions.escalate(
            incident,
            f"the scheduler has forgotten the restart: it shows restart count {target.generation} of job "
            f"{target.job_id} again, after {target.generation + 1}. A start that it gave may live, and another may get "
            "the same count. Nothing is started or ended by the remediator: look which start trains",
        )

    def _give(self, restart: Restart) -> bool:
        incident, target = restart.incident, restart.target
        if self._pace.is_too_early(incident):
            return self._transitions.wait(incident, "the scheduler gave no clear answer")
        if target.shape.gives_new_job:
            jobs = restart.driver.jobs()
            others = jobs if isinstance(jobs, Unknown) else [job for job in jobs if job.submission != incident.id]
            goes_on = successor(restart.replaced, others)
            if isinstance(goes_on, Wait):
                return self._transitions.wait(incident, goes_on.reason)
            if goes_on is not None:
                self._transitions.move(incident, State.ADOPTED, goes_on.reason)
                return True
        if target.shape is Shape.RESUBMIT and target.successor and self._actor.has_released(restart.driver, target):
            # The answer was clear: a person holds it since, unless the reading is older than the call.
            if self._timers.wait(incident.id, _HELD_AGAIN) < self._reading_age:
                return self._transitions.wait(incident, f"job {target.successor} was released, and is shown held")
            return self._transitions.leave(restart, RestartProgress.STUCK)
        if submits_held(target) and self._doubt.unanswered(incident) and self._doubt.lasts(incident):
            return self._transitions.wait(incident, "a job may still be submitted by an earlier call")
        if decides_to_end(incident, target):
            verdict = self._recheck.against(incident)
            if isinstance(verdict, Refuse) and self._doubt.lasts(incident):
                return self._transitions.wait(incident, verdict.reason)
            if verdict is not None:
                return self._transitions.obey(incident, verdict)
        return self._call(restart)

    def repeat(self, restart: Restart) -> bool:
        """Give the same start again, which is idempotent: the scheduler has lost what it had acknowledged."""
        if self._pace.is_too_early(restart.incident):
            return self._transitions.wait(restart.incident, "the scheduler gave no clear answer")
        return self._call(restart)

    def _call(self, restart: Restart) -> bool:
        incident, target = restart.incident, restart.target
        if not self._calls.room():
            return self._transitions.wait(incident, "other calls are under way (--max-actions)")
        if submits_held(target):
            self._doubt.begin(incident)
        else:
            self._doubt.called(incident)
            target = self._exclusions.target(incident, restart.driver, target)
        self._begin(incident, target, restart.driver)
        return True

    def came_late(self, restart: Restart) -> bool:
        """Return whether a call of the remediator to end the attempt has ended a newer start."""
        return restart.is_newer_start_held and self._doubt.may_come_late(restart.incident)

    def undo(self, restart: Restart) -> bool:
        """Release a start that a late call has ended and held: it goes on, and whether it does is verified."""
        incident, job = restart.incident, restart.job
        if self._pace.is_too_early(incident) or not self._calls.room() or not isinstance(job, ScheduledJob):
            return self._transitions.wait(incident, "the scheduler gave no clear answer")
        detail = "the call took effect late, on a newer start of the job, which is released again"
        committed = incident.committed or self._clock.now()
        incident = self._transitions.move(incident, State.VERIFYING, detail, committed=committed)
        self._begin(incident, restart.target, restart.driver, job)
        return True

    def _begin(
        self, incident: Incident, target: RestartTarget, driver: Driver, late: ScheduledJob | None = None
    ) -> None:
        self._pace.called(incident)
        jobs = driver.jobs() if decides_to_end(incident, target) else ()
        self._calls.start(incident.id, lambda: self._actor.commit(incident, target, jobs, late))

    def answered(self, incident: Incident, answer: Answer, shape: Shape) -> None:
        """Go on by the answer of the call, of a restart of this shape."""
        result = answer.result
        if answer.withheld is not None or result.outcome is CallOutcome.REFUSED:
            self._doubt.answered(incident)
        if isinstance(answer.withheld, Forgotten):
            self._transitions.escalate(incident, answer.withheld.reason)
        elif answer.withheld is not None:
            log.info("incident %s: not called: %s", incident.id, answer.withheld.reason)
        elif result.outcome is CallOutcome.ACCEPTED and shape.gives_new_job:
            self._doubt.answered(incident)
            # That the job is there, and not held any more, is seen: a later hold is a person's.
            if result.job_id and not incident.successor:
                detail = f"{_comes_back(incident, result.job_id)}: {result.detail}"
                changes = {"kind": RESUBMITTED, "successor": result.job_id}
                self._transitions.move(incident, State.COMMITTED, detail, **changes)
            else:
                self._transitions.move(incident, State.COMMITTED, result.detail)
        elif result.outcome is CallOutcome.ACCEPTED:
            self._transitions.move(incident, State.VERIFYING, result.detail)
        elif result.outcome is CallOutcome.REFUSED and answer.after is RestartProgress.READY:
            self._transitions.escalate(incident, f"the scheduler refused to start it: {result.detail}")
        else:
            state = State.VERIFYING if answer.late else State.COMMITTED
            self._transitions.move(incident, state, result.detail)


def _comes_back(incident: Incident, new: str) -> str:
    return f"job {incident.job_id} comes back as job {new}"
