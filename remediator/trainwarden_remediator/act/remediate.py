"""The state machine of a restart. Any step may be interrupted; the next process continues from the database row."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.approvals import Approvals
from trainwarden_remediator.act.calls import Calls, Pace
from trainwarden_remediator.act.capture import Captured, Captures, Capturing
from trainwarden_remediator.act.ending import MAX_CALLS, Ending
from trainwarden_remediator.act.exclusions import Exclusions
from trainwarden_remediator.act.restart import Restart, Restarts
from trainwarden_remediator.act.resume_point import STOP, UNVERIFIED
from trainwarden_remediator.act.starting import Starting
from trainwarden_remediator.act.transitions import Transitions
from trainwarden_remediator.act.verify import Verifier
from trainwarden_remediator.decide.verdict import Held
from trainwarden_remediator.drivers.driver import Absent, CallOutcome, CallResult, Driver, RestartProgress, Shape
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import Recheck, Withheld
from trainwarden_remediator.incidents.incident import OPEN_STATES, Incident, State
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.doubt import Doubt
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

# Page if no start was given within this time, plus that of all calls in doubt.
_START_PATIENCE_SECONDS = 1800.0
# A controller that dies may lose what it acknowledged in its last seconds; a later change was made by a user.
_FORGETS_SECONDS = 60.0
# Timer of an incident; its detail is for how many seconds the policy delays the restart.
_DELAY = "delay"
# What comes next depends on how far the scheduler has come.
_AWAITS = (State.PREPARING, State.IN_DOUBT, State.PREPARED, State.COMMITTED)


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
        self._timers = timers
        self._calls = calls
        self._stops_unverified = stops_unverified
        self._patience = _START_PATIENCE_SECONDS + MAX_CALLS * doubt_window
        self._recheck = recheck = Recheck(world, store, withheld)
        doubt, pace = Doubt(timers, doubt_window), Pace(world.clock, repeat_after)
        self._transitions = Transitions(store, timers, metrics, pace)
        self._restarts = Restarts(world, timers, doubt, checkpoint_trust)
        self._approvals = Approvals(store, timers)
        self._capturing = Capturing(captures, timers) if captures else None
        exclusions = Exclusions(store, world.clock)
        self._starting = Starting(
            self._transitions,
            timers,
            recheck,
            actor,
            calls,
            doubt,
            pace,
            exclusions,
            world.clock,
            reading_age=doubt_window,
        )
        self._ending = Ending(self._transitions, timers, recheck, actor, calls, doubt, pace, self._starting)
        self._verifier = Verifier(world, timers, verify_timeout)

    def advance(self, incident: Incident) -> bool:
        """Do the next step, if there is one; return whether anything changed."""
        if incident.state not in OPEN_STATES or self._calls.under_way(incident.id):
            return False
        if self._step(incident):
            return True
        seconds, reason = self._transitions.waited(incident)
        if seconds < self._patience:
            return False
        reason = f"nothing could be done for {self._patience / 60:g} minutes: {reason}"
        if incident.calls:
            reason += _left_as(incident)
        return self._transitions.escalate(incident, reason)

    def _step(self, incident: Incident) -> bool:
        if incident.state is State.PROPOSED:
            return self._begin(incident)
        driver = self._world.drivers.get(incident.scheduler or "")
        if driver is None:
            return self._transitions.wait(incident, f"no driver for scheduler {incident.scheduler!r}")
        if incident.state is State.CAPTURING:
            return self._capture(incident, driver)
        restart = self._restarts.of(incident, driver)
        if isinstance(restart, Unknown):
            return self._transitions.wait(incident, restart.reason)
        if incident.state in (State.PREPARING, State.IN_DOUBT):
            return self._ending.step(restart)
        if incident.state in (State.PREPARED, State.COMMITTED):
            return self._starting.step(restart)
        self._transitions.go_on(incident)  # verification has a deadline of its own
        return self._verify(restart)

    def failed_again(self, incident: Incident, detail: str) -> None:
        """End the verification of a restart whose new attempt has failed too."""
        self._transitions.move(incident, State.FAILED, detail)

    def _is_delayed(self, incident: Incident) -> bool:
        """Return whether the policy's delay still lasts; a clock that was set back makes it no longer."""
        left = incident.not_before - self._world.clock.now()
        if left <= 0:
            return False
        planned = self._timers.detail(incident.id, _DELAY) or repr(left)
        return self._timers.wait(incident.id, _DELAY, planned) < float(planned)

    def _begin(self, incident: Incident) -> bool:
        if self._is_delayed(incident):
            return False
        verdict = self._recheck.against(incident)
        if isinstance(verdict, Held):
            self._approvals.begin_anew(incident)
        if verdict is not None:
            return self._transitions.obey(incident, verdict)
        by = self._approvals.by(incident)
        if by is None:
            self._transitions.go_on(incident)  # a person is waited for, as the policy has it
            return False
        state = State.CAPTURING if self._capturing else State.PREPARING
        before = self._verifier.figures(incident.run_id, incident.attempt_key or "")
        detail = f"nothing speaks against it{by and f', approved by {by}'}"
        changes = {"before": before.as_text() if before else None, "shape": self._restarts.shape(incident).value}
        self._transitions.move(incident, state, detail, paging=False, **changes)
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
            reason = (
                f"{why}. Nothing is ended: restart it by hand. Later restarts need no person where the policy vouches "
                "for the layout (checkpoints:)"
            )
            changes |= {"reason": reason, "paging": True}
            self._transitions.move(incident, State.ESCALATED, str(found), **changes)
            return True
        if point.step is not None:
            changes |= {"checkpoint_step": float(point.step), "resume_checkpoint": point.path}
        self._transitions.move(incident, State.PREPARING, str(found), **changes)
        return True

    def _verify(self, restart: Restart) -> bool:
        incident, seen = restart.incident, restart.progress
        if seen is RestartProgress.READY and restart.target.shape is Shape.RESUBMIT:
            seen = RestartProgress.STUCK  # it was seen released, so a person holds it
        if seen is RestartProgress.READY:
            if 0 <= self._world.clock.now() - (incident.committed or 0.0) < _FORGETS_SECONDS:
                return self._starting.repeat(restart)
            seen = RestartProgress.STUCK  # a user holds the job
        if seen is RestartProgress.STUCK and self._starting.came_late(restart):
            return self._starting.undo(restart)
        reading = restart.job
        if restart.target.shape.gives_new_job and not isinstance(reading, Unknown):
            reading = restart.successor or Absent()
        verdict = self._verifier.verify(incident, reading, seen)
        recovered = verdict is not None and verdict.state is State.DONE
        if not recovered and restart.went_back(seen):
            return self._starting.step_back(restart)
        if verdict is None:
            return False
        self._transitions.move(incident, verdict.state, verdict.detail, **verdict.changes)
        return True

    def answers(self) -> dict[str, Answer | Exception]:
        """Return what has come of calls, by incident, for `answered`."""
        return self._calls.take()

    def answered(self, incident: Incident, answer: Answer | Exception) -> None:
        """Move on by the answer of a call."""
        if isinstance(answer, Exception):
            log.error("incident %s: the call failed", incident.id, exc_info=answer)
            answer = Answer(result=CallResult(CallOutcome.UNCLEAR, f"the call failed: {type(answer).__name__}"))
        if incident.state is State.PREPARING:
            self._ending.answered(incident, answer)
        elif incident.state in (State.COMMITTED, State.VERIFYING):
            self._starting.answered(incident, answer, self._restarts.shape(incident))

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


def _left_as(incident: Incident) -> str:
    """Return how a call may have left the run, and what a person can do about it."""
    shape, job = Shape(incident.shape or Shape.REQUEUE), incident.successor or incident.job_id
    if shape is Shape.REQUEUE or (shape is Shape.RESUBMIT and incident.successor):
        return f"; job {job} may be held: look at it, and release it (scontrol release {job})"
    if shape.gives_new_job:
        return f"; job {job} may have ended, and nothing started in its place: look at it, and submit it again"
    return ""
