"""The state machine of a restart. Any step may be interrupted; the next process continues from the database row."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trainwarden_remediator.act.act import Actor, Answer, Forgotten, decides_to_end, submits_held
from trainwarden_remediator.act.approvals import Approvals
from trainwarden_remediator.act.calls import Calls
from trainwarden_remediator.act.capture import Captured, Captures, Capturing
from trainwarden_remediator.act.exclusions import Exclusions
from trainwarden_remediator.act.resume_point import STOP, UNVERIFIED
from trainwarden_remediator.act.verify import Verifier
from trainwarden_remediator.decide.decide import Held, NotNow, Refuse, Wait
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    CallResult,
    Driver,
    JobState,
    Reading,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    Shape,
    restart_progress,
    successor_of,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import Recheck, Withheld, successor
from trainwarden_remediator.incidents.incident import OPEN_STATES, Incident, State
from trainwarden_remediator.incidents.price import VETOED
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.notify.outbox import NOT_RESTARTED, RESUBMITTED
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.doubt import Doubt
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

_MAX_CALLS = 5
# Page if no start was given within this time, plus that of all calls in doubt.
_START_PATIENCE_SECONDS = 1800.0
# A controller that dies may lose what it acknowledged in its last seconds; a later change was made by a user.
_FORGETS_SECONDS = 60.0
# What comes next depends on how far the scheduler has come.
_AWAITS = (State.PREPARING, State.IN_DOUBT, State.PREPARED, State.COMMITTED)
# Kinds of timers of an incident.
_WAITS, _HELD, _ENDS, _MISSING, _HELD_AGAIN = "waits", "held", "ends", "missing", "held again"


class Remediator:
    """Advances open incidents, from the readings of a round. Not for several threads.

    Calls to schedulers run beside it, upon fresh readings of `actor`: that one is under way is a state, and its answer
    is taken in the next round, whose readings are newer.
    `checkpoint_trust` returns, for the name of a policy, what a run that it restarts takes for a complete checkpoint.
    `stops_unverified` returns whether such a policy ends nothing where no checkpoint could be verified.
    `withheld` returns why the policy of a run forbids a restart by now that it has decided.
    `captures`, if given, captures what a run shows before it is ended.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        metrics: Metrics,
        timers: Timers,
        actor: Actor,
        calls: Calls[Answer],
        *,
        doubt_window: float,
        repeat_after: float,
        verify_timeout: float,
        checkpoint_trust: Callable[[str], str | None] = lambda _policy: None,
        stops_unverified: Callable[[str], bool] = lambda _policy: False,
        withheld: Withheld = lambda _run_id, _requested, _mode, _now: None,
        captures: Captures | None = None,
    ) -> None:
        self._world = world
        self._store = store
        self._metrics = metrics
        self._recheck = Recheck(world, store, withheld)
        self._exclusions = Exclusions(store, world.clock)
        self._timers = timers
        self._approvals = Approvals(store, timers)
        self._verifier = Verifier(world, timers, verify_timeout)
        self._patience = _START_PATIENCE_SECONDS + _MAX_CALLS * doubt_window
        self._doubt = Doubt(timers, doubt_window)
        self._repeat_after = repeat_after
        self._patience_for_missing = doubt_window
        self._actor = actor
        self._calls = calls
        self._checkpoint_trust = checkpoint_trust
        self._stops_unverified = stops_unverified
        self._capturing = Capturing(captures, timers) if captures else None
        # Monotonic times of the last calls that may be repeated, in memory: a restart may repeat one early.
        self._repeated: dict[str, float] = {}

    def advance(self, incident: Incident) -> bool:
        """Do the next step, if there is one; return whether anything changed."""
        if incident.state not in OPEN_STATES or self._calls.under_way(incident.id):
            return False
        if self._step(incident):
            return True
        if (self._timers.elapsed(incident.id, _WAITS) or 0.0) >= self._patience:
            reason = f"nothing could be done for {self._patience / 60:g} minutes: "
            reason += self._timers.detail(incident.id, _WAITS) or ""
            self._escalate(incident, f"{reason}{self._left_as(incident)}" if incident.calls else reason)
            return True
        return False

    def _left_as(self, incident: Incident) -> str:
        """Return how a call may have left the run, and what a person can do about it."""
        shape, job = Shape(incident.shape or Shape.REQUEUE), incident.successor or incident.job_id
        if shape is Shape.REQUEUE or (shape is Shape.RESUBMIT and incident.successor):
            return f"; job {job} may be held: look at it, and release it (scontrol release {job})"
        if shape.gives_new_job:
            return f"; job {job} may have ended, and nothing started in its place: look at it, and submit it again"
        return ""

    def _step(self, incident: Incident) -> bool:
        if incident.state is State.PROPOSED:
            return self._begin(incident)
        driver = self._world.drivers.get(incident.scheduler or "")
        if driver is None:
            return self._wait(incident, f"no driver for scheduler {incident.scheduler!r}")
        if incident.state is State.CAPTURING:
            return self._capture(incident, driver)
        if incident.state in (State.PREPARING, State.IN_DOUBT):
            return self._prepare(incident, driver)
        if incident.state is State.PREPARED:
            return self._commit(incident, driver)
        if incident.state is State.COMMITTED:
            return self._start(incident, driver)
        self._timers.forget(incident.id, _WAITS)  # verification has a deadline of its own
        return self._verify(incident, driver)

    def failed_again(self, incident: Incident, detail: str) -> None:
        """End the verification of a restart whose new attempt has failed too."""
        self._move(incident, State.FAILED, detail)

    def _begin(self, incident: Incident) -> bool:
        if self._world.clock.now() < incident.not_before:
            return False
        verdict = self._recheck.against(incident)
        if isinstance(verdict, Held):
            self._approvals.begin_anew(incident)
        if isinstance(verdict, Wait):
            return self._wait_for(incident, verdict)
        if isinstance(verdict, Refuse):
            self._withdraw(incident, verdict)
            return True
        answer = self._approvals.verdict(incident)
        if answer is None:
            self._timers.forget(incident.id, _WAITS)  # a person is waited for, as the policy has it
            return False
        answered, by = answer
        if answered == VETOED:
            self._withdraw(incident, Refuse(f"vetoed by {by}"))
        else:
            state = State.CAPTURING if self._capturing else State.PREPARING
            before = self._verifier.figures(incident.run_id, incident.attempt_key or "")
            detail = f"nothing speaks against it{by and f', approved by {by}'}"
            changes = {"before": before.as_text() if before else None, "shape": self._shape(incident).value}
            self._move(incident, state, detail, paging=False, **changes)
        return True

    def _capture(self, incident: Incident, driver: Driver) -> bool:
        found = self._capturing.step(incident, driver.job(incident.job_id or "")) if self._capturing else Captured("")
        if found is None:
            return False
        texts = {"stacks": found.text, "suspect": found.suspect, "capture": found.folder}
        changes: dict[str, Any] = {name: text or None for name, text in texts.items()}
        point = found.checkpoint
        unverified = point.verdict == UNVERIFIED and self._stops_unverified(incident.policy)
        if point.verdict == STOP or unverified:
            why = point.text or "its checkpoints could not be looked at"
            reason = f"{why}. Nothing is ended: vouch for the layout (checkpoints: in the policy), or restart it"
            self._move(incident, State.ESCALATED, str(found), **changes, reason=reason, paging=True)
            return True
        if point.step is not None:
            changes |= {"checkpoint_step": float(point.step), "resume_checkpoint": point.path}
        self._move(incident, State.PREPARING, str(found), **changes)
        return True

    def answers(self) -> dict[str, Answer | Exception]:
        """Return what has come of calls, by incident, for `answered`."""
        return self._calls.take()

    def is_calling(self, incident: Incident) -> bool:
        """Return whether a call for an incident is under way."""
        return self._calls.under_way(incident.id)

    def awaits_scheduler(self, incident: Incident) -> bool:
        """Return whether the next step of an incident depends on what its scheduler shows by now."""
        if self.is_calling(incident):
            return False
        if incident.state is State.PREPARING and not incident.calls and not self._calls.room():
            return False  # what it waits for is a place among the calls, each of which reads anew
        return incident.state in _AWAITS

    def finish(self) -> None:
        """Wait for the calls under way."""
        self._calls.finish()

    def answered(self, incident: Incident, answer: Answer | Exception) -> None:
        """Move on by the answer of a call."""
        if isinstance(answer, Exception):
            log.error("incident %s: the call failed", incident.id, exc_info=answer)
            answer = Answer(result=CallResult(CallOutcome.UNCLEAR, f"the call failed: {type(answer).__name__}"))
        if incident.state is State.PREPARING:
            self._prepare_answered(incident, answer)
        elif incident.state in (State.COMMITTED, State.VERIFYING):
            self._commit_answered(incident, answer)

    def _prepare_answered(self, incident: Incident, answer: Answer) -> None:
        result = answer.result
        if answer.withheld is not None:
            self._doubt.end(incident)
            self._repeated[incident.id] = self._world.clock.monotonic()
            detail = f"not called: {answer.withheld.reason}"
            incident = self._move(incident, State.PREPARING, detail, calls=incident.calls - 1)
            if isinstance(answer.withheld, Forgotten):
                self._escalate(incident, answer.withheld.reason)
            elif isinstance(answer.withheld, Refuse):
                self._withdraw(incident, answer.withheld)
            return
        if result.outcome is CallOutcome.UNCLEAR:
            self._doubt.begin(incident)
        else:
            self._doubt.answered(incident)
        if result.outcome is CallOutcome.ACCEPTED:
            self._move(incident, State.PREPARING, result.detail)
        elif result.outcome is CallOutcome.UNCLEAR or answer.after is not RestartProgress.UNTOUCHED:
            self._move(incident, State.IN_DOUBT, result.detail)
        else:
            self._escalate(incident, f"the scheduler refused: {result.detail}")

    def _commit_answered(self, incident: Incident, answer: Answer) -> None:
        result = answer.result
        if answer.withheld is not None or result.outcome is CallOutcome.REFUSED:
            self._doubt.answered(incident)
        if isinstance(answer.withheld, Forgotten):
            self._escalate(incident, answer.withheld.reason)
        elif answer.withheld is not None:
            log.info("incident %s: not called: %s", incident.id, answer.withheld.reason)
        elif result.outcome is CallOutcome.ACCEPTED and self._shape(incident).gives_new_job:
            self._doubt.answered(incident)
            # That the job is there, and not held any more, is seen: a later hold is a person's.
            if result.job_id and not incident.successor:
                detail = f"{_comes_back(incident, result.job_id)}: {result.detail}"
                self._move(incident, State.COMMITTED, detail, kind=RESUBMITTED, successor=result.job_id)
            else:
                self._move(incident, State.COMMITTED, result.detail)
        elif result.outcome is CallOutcome.ACCEPTED:
            self._move(incident, State.VERIFYING, result.detail)
        elif result.outcome is CallOutcome.REFUSED and answer.after is RestartProgress.READY:
            self._escalate(incident, f"the scheduler refused to start it: {result.detail}")
        else:
            self._move(incident, State.VERIFYING if answer.late else State.COMMITTED, result.detail)

    def _recheck_before_call(self, incident: Incident, *, may_have_called: bool) -> bool | None:
        """Return None if the attempt may be ended; else whether the incident changed."""
        verdict = self._recheck.against(incident)
        if isinstance(verdict, Wait):
            return self._wait_for(incident, verdict)
        if isinstance(verdict, Refuse) and may_have_called and self._doubt.lasts(incident):
            return self._wait(incident, verdict.reason)
        if isinstance(verdict, Refuse):
            self._withdraw(incident, verdict)
            return True
        if not self._calls.room():
            return self._wait(incident, "other calls are under way (--max-actions)")
        return None

    def _withdraw(self, incident: Incident, verdict: Refuse) -> None:
        # An alert that is not active now may fire again with the same start time; a refuted one may not.
        self._settled(self._store.withdraw(incident, verdict.reason, dropped=isinstance(verdict, NotNow)))

    def _prepare(self, incident: Incident, driver: Driver) -> bool:
        if incident.state is State.PREPARING and self._doubt.unanswered(incident):
            self._doubt.begin(incident)
            self._move(incident, State.IN_DOUBT, "the remediator ended before it had the answer of the call")
            return True
        target = self._target(incident)
        seen = restart_progress(driver, target)
        if seen is RestartProgress.READY and target.shape is Shape.REQUEUE and not incident.calls:
            self._leave(incident, RestartProgress.STUCK)  # held before any call of the remediator: a user's hold
        elif seen is RestartProgress.READY:
            self._move(incident, State.PREPARED, seen.value)
        elif seen is RestartProgress.UNTOUCHED:
            return self._call_prepare(incident, driver, target)
        elif seen is RestartProgress.UNKNOWN:
            if incident.state is State.IN_DOUBT or not incident.calls:
                return self._wait(incident, seen.value)
            self._move(incident, State.IN_DOUBT, seen.value)
        elif seen is RestartProgress.BUSY:
            if target.ended and target.shape.gives_new_job:
                self._timers.wait(incident.id, _ENDS)  # that may take longer than the window of doubt
            return self._leave_unstarted(incident, driver, target) or self._wait(incident, seen.value)
        elif self._came_late(incident, driver, target):
            return self._undo(incident, driver, target)
        elif seen is not RestartProgress.STUCK and self._doubt.may_come_late(incident):
            return self._wait(incident, f"{seen.value}, and a call may still take effect on it")
        else:
            self._leave(incident, seen)
        return True

    def _leave_unstarted(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        """Leave a job that was to be ended by a call, and that the scheduler has not started by now; return whether."""
        job = driver.job(target.job_id)
        if not isinstance(job, ScheduledJob) or not incident.calls or self._doubt.lasts(incident):
            return False
        if (job.run_id, job.generation) != (target.run_id, target.generation):
            return False
        if job.state is JobState.HELD:
            self._escalate(
                incident,
                f"the scheduler shows job {job.job_id} held under the restart count {job.generation}, whose start was "
                "to be ended: it has forgotten that start. Nothing is started by the remediator: make sure that no "
                f"process of the run lives, and release it (scontrol release {job.job_id})",
            )
        elif job.state is JobState.WAITING:
            self._move(incident, State.ADOPTED, "the job waits in the queue again, and not by us")
        else:
            return False
        return True

    def _came_late(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        """Return whether a newer start than the one to be ended is held as only a late call of ours leaves it."""
        job = driver.job(target.job_id)
        return (
            isinstance(job, ScheduledJob)
            and job.run_id == target.run_id
            and job.state is JobState.HELD
            and job.held_by_requeue
            and job.refusal is None
            and job.generation > target.generation + 1
            and self._doubt.may_come_late(incident)
        )

    def _undo(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        """Release a start that a late call has ended and held: it goes on, and whether it does is verified."""
        job = driver.job(target.job_id)
        if self._too_early(incident) or not self._calls.room() or not isinstance(job, ScheduledJob):
            return self._wait(incident, "the scheduler gave no clear answer")
        detail = "the call took effect late, on a newer start of the job, which is released again"
        committed = incident.committed or self._world.clock.now()
        incident = self._move(incident, State.VERIFYING, detail, committed=committed)
        self._start_commit(incident, driver, target, job)
        return True

    def _call_prepare(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        if incident.calls and self._doubt.lasts(incident):
            return self._wait(incident, "a call may still take effect")
        self._timers.forget(incident.id, _ENDS)
        if incident.calls >= _MAX_CALLS:
            self._escalate(incident, f"the scheduler did not end the attempt after {incident.calls} calls")
            return True
        jobs = driver.jobs()
        held_back = self._recheck_before_call(incident, may_have_called=False)
        if held_back is not None:
            return held_back
        if self._too_early(incident):
            return self._wait(incident, "something spoke against the call when it was to be made")
        self._doubt.begin(incident)
        incident = self._move(incident, State.PREPARING, f"call {incident.calls + 1}", calls=incident.calls + 1)
        self._calls.start(incident.id, lambda: self._actor.prepare(incident, target, jobs))
        return True

    def _commit(self, incident: Incident, driver: Driver) -> bool:
        seen = restart_progress(driver, self._target(incident))
        if seen is RestartProgress.READY:
            self._move(incident, State.COMMITTED, "the next start may be given", committed=self._world.clock.now())
        elif seen is RestartProgress.UNTOUCHED:
            self._move(incident, State.IN_DOUBT, "the scheduler has forgotten that it ended the attempt")
        elif seen in (RestartProgress.UNKNOWN, RestartProgress.BUSY):
            return self._wait(incident, seen.value)
        else:
            self._leave(incident, seen)
        return True

    def _start(self, incident: Incident, driver: Driver) -> bool:
        target = self._target(incident)
        seen = restart_progress(driver, target)
        new = self._successor(driver, target)
        if new is not None and new.job_id != target.successor:
            self._move(
                incident, State.COMMITTED, _comes_back(incident, new.job_id), kind=RESUBMITTED, successor=new.job_id
            )
        elif seen is RestartProgress.READY:
            return self._give(incident, driver, target)
        elif self._went_back(driver, target, seen):
            self._step_back(incident, target)
        elif seen is RestartProgress.STARTED and (
            target.shape is not Shape.ONE_CALL or self._token_seen(driver, target)
        ):
            self._move(incident, State.VERIFYING, seen.value)
        elif self._lost_submission(incident, driver, target, seen):
            detail = f"the scheduler has forgotten job {target.successor}, which was held"
            self._move(incident, State.COMMITTED, detail, successor=None)
        elif seen is RestartProgress.GONE and target.successor and new is None:
            # A reading may be older than the job; a person's cancel is seen as long as SLURM remembers it.
            if self._timers.wait(incident.id, _MISSING) < self._patience_for_missing:
                return self._wait(incident, f"job {target.successor} is not listed")
            self._escalate(
                incident,
                f"job {target.job_id} was ended, and job {target.successor}, which was to be its next start, is not "
                "there any more: it is unknown why. Nothing is started again by the remediator",
            )
        elif seen in (RestartProgress.UNKNOWN, RestartProgress.BUSY, RestartProgress.UNTOUCHED):
            return self._wait(incident, seen.value)
        else:
            self._leave(incident, seen)
        return True

    def _successor(self, driver: Driver, target: RestartTarget) -> ScheduledJob | None:
        """Return the new job that the start comes back as, if the scheduler shows one."""
        submitted = driver.submitted(target) if target.shape.gives_new_job else ()
        return None if isinstance(submitted, Unknown) else successor_of(submitted, target)

    def _lost_submission(
        self, incident: Incident, driver: Driver, target: RestartTarget, seen: RestartProgress
    ) -> bool:
        """Return whether the controller was started again and has lost a job that it held, and that never started."""
        if target.shape is not Shape.RESUBMIT or seen is not RestartProgress.GONE or not target.successor:
            return False
        if self._successor(driver, target) is not None or self._actor.has_committed(incident):
            return False
        return self._actor.was_forgotten(driver, target)

    def _went_back(self, driver: Driver, target: RestartTarget, seen: RestartProgress) -> bool:
        """Return whether the scheduler shows the old start again, after it had shown that it was replaced."""
        job = driver.job(target.job_id)
        if target.shape is not Shape.REQUEUE:
            return target.shape.gives_new_job and _runs_still(job, target) and seen is not RestartProgress.UNKNOWN
        return isinstance(job, ScheduledJob) and job.run_id == target.run_id and job.generation <= target.generation

    def _step_back(self, incident: Incident, target: RestartTarget) -> None:
        """End the attempt anew if no start was given since; else page: it is unknown what lives under which count."""
        if incident.state is State.COMMITTED and not self._actor.has_committed(incident):
            # A new job that is there all the same is found by its token.
            forgotten = "the scheduler has forgotten that it ended the attempt"
            self._move(incident, State.IN_DOUBT, forgotten, successor=None)
            return
        if target.shape.gives_new_job:
            self._escalate(
                incident,
                f"the scheduler shows job {target.job_id} running again, after its next start, job "
                f"{target.successor or '(unknown)'}, was given. Nothing is started or ended by the remediator: look "
                "which one trains, and end the other",
            )
            return
        self._escalate(
            incident,
            f"the scheduler has forgotten the restart: it shows restart count {target.generation} of job "
            f"{target.job_id} again, after {target.generation + 1}. A start that it gave may live, and another may get "
            "the same count. Nothing is started or ended by the remediator: look which start trains",
        )

    def _give(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        if self._too_early(incident):
            return self._wait(incident, "the scheduler gave no clear answer")
        if target.shape.gives_new_job:
            jobs = driver.jobs()
            others = jobs if isinstance(jobs, Unknown) else [job for job in jobs if job.submission != incident.id]
            goes_on = successor(driver.job(target.job_id), others)
            if isinstance(goes_on, Wait):
                return self._wait(incident, goes_on.reason)
            if goes_on is not None:
                self._move(incident, State.ADOPTED, goes_on.reason)
                return True
        if target.shape is Shape.RESUBMIT and target.successor and self._actor.has_released(driver, target):
            # The answer was clear: a person holds it since, unless the reading is older than the call.
            if self._timers.wait(incident.id, _HELD_AGAIN) < self._patience_for_missing:
                return self._wait(incident, f"job {target.successor} was released, and is shown held")
            self._leave(incident, RestartProgress.STUCK)
            return True
        if submits_held(target) and self._doubt.unanswered(incident) and self._doubt.lasts(incident):
            return self._wait(incident, "a job may still be submitted by an earlier call")
        if decides_to_end(incident, target):
            held_back = self._recheck_before_call(incident, may_have_called=True)
            if held_back is not None:
                return held_back
        return self._call_commit(incident, driver, target)

    def _too_early(self, incident: Incident) -> bool:
        return self._world.clock.monotonic() - self._repeated.get(incident.id, float("-inf")) < self._repeat_after

    def _call_commit(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        if not self._calls.room():
            return self._wait(incident, "other calls are under way (--max-actions)")
        if submits_held(target):
            self._doubt.begin(incident)
        else:
            self._doubt.called(incident)
            target = self._exclusions.target(incident, driver, target)
        self._start_commit(incident, driver, target)
        return True

    def _start_commit(
        self, incident: Incident, driver: Driver, target: RestartTarget, late: ScheduledJob | None = None
    ) -> None:
        self._repeated[incident.id] = self._world.clock.monotonic()
        jobs = driver.jobs() if decides_to_end(incident, target) else ()
        self._calls.start(incident.id, lambda: self._actor.commit(incident, target, jobs, late))

    def _verify(self, incident: Incident, driver: Driver) -> bool:
        target = self._target(incident)
        seen = restart_progress(driver, target)
        if seen is RestartProgress.READY and target.shape is Shape.RESUBMIT:
            seen = RestartProgress.STUCK  # it was seen released, so a person holds it
        if seen is RestartProgress.READY:
            if 0 <= self._world.clock.now() - (incident.committed or 0.0) < _FORGETS_SECONDS:
                # The scheduler lost what it had acknowledged; repeating the same start is idempotent.
                return not self._too_early(incident) and self._call_commit(incident, driver, target)
            seen = RestartProgress.STUCK  # a user holds the job
        if seen is RestartProgress.STUCK and self._came_late(incident, driver, target):
            return not self._too_early(incident) and self._undo(incident, driver, target)
        reading = driver.job(target.job_id)
        if target.shape.gives_new_job and not isinstance(reading, Unknown):
            reading = self._successor(driver, target) or Absent()
        verdict = self._verifier.verify(incident, reading, seen)
        recovered = verdict is not None and verdict.state is State.DONE
        if not recovered and self._went_back(driver, target, seen):
            self._step_back(incident, target)
            return True
        if verdict is None:
            return False
        self._move(incident, verdict.state, verdict.detail, **verdict.changes)
        return True

    def _leave(self, incident: Incident, seen: RestartProgress) -> None:
        driver = self._world.drivers.get(incident.scheduler or "")
        reading = driver.job(incident.job_id or "") if driver is not None else None
        if seen is RestartProgress.STUCK:
            self._escalate(incident, f"{seen.value}: it does not start until a person releases it")
        elif seen is RestartProgress.GONE and isinstance(reading, Absent) and reading.lost:
            self._escalate(incident, reading.lost)
        else:
            self._move(incident, State.ADOPTED, f"{seen.value}, and not by us")

    def _escalate(self, incident: Incident, reason: str) -> None:
        self._move(incident, State.ESCALATED, reason, reason=reason, paging=True)

    def _move(self, incident: Incident, state: State, detail: str, **changes: Any) -> Incident:
        moved = self._store.move(incident, state, detail, **changes)
        if moved.state not in OPEN_STATES:
            self._settled(moved)
        return moved

    def _settled(self, incident: Incident) -> None:
        self._repeated.pop(incident.id, None)
        self._timers.forget(incident.id)
        self._metrics.settled(incident)

    def _wait_for(self, incident: Incident, wait: Wait) -> bool:
        """Wait; what people have switched, or a storm, may last: it is noted once, and nobody is paged for its time."""
        if not isinstance(wait, Held):
            self._timers.forget(incident.id, _HELD)
            return self._wait(incident, wait.reason)
        if self._timers.detail(incident.id, _HELD) != wait.reason:
            self._timers.wait(incident.id, _HELD, wait.reason)
            self._store.move(incident, incident.state, f"waits: {wait.reason}", kind=NOT_RESTARTED)
        self._timers.forget(incident.id, _WAITS)
        return False

    def _wait(self, incident: Incident, reason: str) -> bool:
        self._timers.wait(incident.id, _WAITS, reason)
        return False

    def _token_seen(self, driver: Driver, target: RestartTarget) -> bool:
        return target.incident in getattr(driver.job(target.job_id), "tokens", {})

    def _shape(self, incident: Incident) -> Shape:
        """Return the shape of a restart: that with which it has begun, else that of its job."""
        if incident.shape:
            return Shape(incident.shape)
        driver = self._world.drivers[incident.scheduler or ""]
        job = driver.job(incident.job_id or "")
        return (job.shape if isinstance(job, ScheduledJob) else None) or driver.shape

    def _has_ended(self, incident: Incident) -> bool:
        """Return whether the end of the attempt is on record, or a call may have caused what is seen of it now."""
        if incident.state not in (State.PREPARING, State.IN_DOUBT):
            return incident.state in (State.PREPARED, State.COMMITTED, State.VERIFYING)
        return incident.calls > 0 and (
            self._timers.elapsed(incident.id, _ENDS) is not None or self._doubt.lasts(incident)
        )

    def _target(self, incident: Incident) -> RestartTarget:
        trust = self._checkpoint_trust(incident.policy)
        environment = {"TRAINWARDEN_CHECKPOINT_TRUST": trust} if trust else {}
        checkpoint, shape = incident.resume_checkpoint, self._shape(incident)
        # Ray's users have scripts that do not use the library: they read it themselves.
        if checkpoint and shape is Shape.SUBMIT:
            environment["TRAINWARDEN_RESUME_CHECKPOINT"] = checkpoint
        if checkpoint and shape.gives_new_job:
            step = incident.checkpoint_step
            environment |= self._world.records.resume_variables(incident.run_id, checkpoint, step)
        return RestartTarget(
            incident=incident.id,
            run_id=incident.run_id,
            job_id=incident.job_id or "",
            generation=incident.generation,
            reason=incident.reason,
            environment=environment,
            exclude_nodes=tuple(sorted(incident.excluded)),
            shape=shape,
            attempt=incident.attempt,
            ended=self._has_ended(incident),
            successor=incident.successor or "",
        )


def _comes_back(incident: Incident, new: str) -> str:
    return f"job {incident.job_id} comes back as job {new}"


def _runs_still(job: Reading, target: RestartTarget) -> bool:
    return isinstance(job, ScheduledJob) and job.state is JobState.RUNNING and job.generation == target.generation
