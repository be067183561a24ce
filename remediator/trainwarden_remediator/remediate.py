"""The state machine of a restart. Any step may be interrupted; the next process continues from the database row."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trainwarden_remediator.decide import Refuse, Wait
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    CallResult,
    Driver,
    RestartProgress,
    RestartTarget,
    progress,
)
from trainwarden_remediator.examine import INACTIVE, Recheck
from trainwarden_remediator.incident import OPEN_STATES, Incident, State
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.store import Store
from trainwarden_remediator.verify import Verifier
from trainwarden_remediator.wait_limit import WaitLimit
from trainwarden_remediator.world import World

log = logging.getLogger(__name__)

_MAX_CALLS = 5
# Page if no start was given within this time, plus that of all calls in doubt.
_PATIENCE_SECONDS = 1800.0
# A controller that dies may lose what it acknowledged in its last seconds; a later change was made by a user.
_FORGETS_SECONDS = 60.0


class Remediator:
    """Advances open incidents.

    `checkpoint_trust` returns, for the name of a policy, what a run that it restarts takes for a complete checkpoint.
    `crashpoint` is called around every call to a scheduler; tests make it exit there.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        metrics: Metrics,
        *,
        doubt_window: float,
        repeat_after: float,
        verify_timeout: float,
        checkpoint_trust: Callable[[str], str | None] = lambda _policy: None,
        crashpoint: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._world = world
        self._store = store
        self._metrics = metrics
        self._recheck = Recheck(world)
        self._verifier = Verifier(world, verify_timeout)
        self._wait_limit = WaitLimit(world.clock, _PATIENCE_SECONDS + _MAX_CALLS * doubt_window)
        self._doubt_window = doubt_window
        self._repeat_after = repeat_after
        self._checkpoint_trust = checkpoint_trust
        self._crashpoint = crashpoint
        # Monotonic times of the last calls, kept in memory: after a restart of the remediator every window begins
        # again. It can only become longer, and no jump of the wall clock shortens it.
        self._called: dict[str, float] = {}
        self._repeated: dict[str, float] = {}

    def advance(self, incident: Incident) -> bool:
        """Do the next step, if there is one; return whether anything changed."""
        if incident.state not in OPEN_STATES:
            return False
        if self._step(incident):
            return True
        if reason := self._wait_limit.expired(incident.id):
            self._escalate(incident, f"{reason}; the job may be held" if incident.calls else reason)
            return True
        return False

    def _step(self, incident: Incident) -> bool:
        if incident.state is State.PROPOSED:
            return self._begin(incident)
        driver = self._world.drivers.get(incident.scheduler or "")
        if driver is None:
            return self._wait(incident, f"no driver for scheduler {incident.scheduler!r}")
        if incident.state in (State.PREPARING, State.IN_DOUBT):
            return self._prepare(incident, driver)
        if incident.state is State.PREPARED:
            return self._commit(incident, driver)
        if incident.state is State.COMMITTED:
            return self._start(incident, driver)
        self._wait_limit.forget(incident.id)  # verification has a deadline of its own
        return self._verify(incident, driver)

    def failed_again(self, incident: Incident, detail: str) -> None:
        """End the verification of a restart whose new attempt has failed too."""
        self._move(incident, State.FAILED, detail)

    def _begin(self, incident: Incident) -> bool:
        if self._world.clock.now() < incident.not_before:
            return False
        verdict = self._recheck.against(incident)
        if isinstance(verdict, Wait):
            return self._wait(incident, verdict.reason)
        if isinstance(verdict, Refuse):
            self._withdraw(incident, verdict.reason)
        else:
            self._move(incident, State.PREPARING, "nothing speaks against it")
        return True

    def _recheck_before_call(self, incident: Incident, *, may_have_called: bool) -> bool | None:
        """Return None if the attempt may be ended; else whether the incident changed."""
        verdict = self._recheck.against(incident)
        if isinstance(verdict, Wait):
            return self._wait(incident, verdict.reason)
        if isinstance(verdict, Refuse) and may_have_called and self._in_doubt(incident):
            return self._wait(incident, verdict.reason)
        if isinstance(verdict, Refuse):
            self._withdraw(incident, verdict.reason)
            return True
        problem = self._world.records.announce_restart(
            incident.run_id,
            incident.attempt_key or "",
            incident.reason,
            incident.id,
            self._checkpoint_trust(incident.policy),
        )
        if problem:
            log.warning("run %s: %s", incident.run_id, problem)
        return None

    def _in_doubt(self, incident: Incident) -> bool:
        """Return whether an earlier call may still take effect; only time and a fresh reading exclude it."""
        now = self._world.clock.monotonic()
        return now - self._called.setdefault(incident.id, now) < self._doubt_window

    def _withdraw(self, incident: Incident, reason: str) -> None:
        # An alert that is not active now may fire again with the same start time; a refuted one may not.
        self._settled(self._store.withdraw(incident, reason, dropped=reason == INACTIVE))

    def _prepare(self, incident: Incident, driver: Driver) -> bool:
        target = self._target(incident)
        seen = self._progress(driver, target)
        if seen is RestartProgress.READY and driver.two_phase and not incident.calls:
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
            return self._wait(incident, seen.value)
        else:
            self._leave(incident, seen)
        return True

    def _call_prepare(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        if incident.calls and self._in_doubt(incident):
            return self._wait(incident, "a call may still take effect")
        if incident.calls >= _MAX_CALLS:
            self._escalate(incident, f"the scheduler did not end the attempt after {incident.calls} calls")
            return True
        driver.refresh()
        held_back = self._recheck_before_call(incident, may_have_called=False)
        if held_back is not None:
            return held_back
        incident = self._move(incident, State.PREPARING, f"call {incident.calls + 1}", calls=incident.calls + 1)
        self._called[incident.id] = self._world.clock.monotonic()
        answer = self._call("prepare", driver.prepare, driver, target)
        if answer.outcome is CallOutcome.ACCEPTED:
            self._move(incident, State.PREPARING, answer.detail)
        elif answer.outcome is CallOutcome.UNCLEAR or self._progress(driver, target) is not RestartProgress.UNTOUCHED:
            self._move(incident, State.IN_DOUBT, answer.detail)
        else:
            self._escalate(incident, f"the scheduler refused: {answer.detail}")
        return True

    def _commit(self, incident: Incident, driver: Driver) -> bool:
        seen = self._progress(driver, self._target(incident))
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
        driver.refresh()
        seen = self._progress(driver, target)
        if seen is RestartProgress.READY:
            return self._give(incident, driver, target)
        if seen is RestartProgress.STARTED and (driver.two_phase or self._token_seen(driver, target)):
            self._move(incident, State.VERIFYING, seen.value)
        elif seen in (RestartProgress.UNKNOWN, RestartProgress.BUSY, RestartProgress.UNTOUCHED):
            return self._wait(incident, seen.value)
        else:
            self._leave(incident, seen)
        return True

    def _give(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        if self._too_early(incident):
            return self._wait(incident, "the scheduler gave no clear answer")
        # One call that ends the old start and gives the next needs the same checks as one that only ends.
        held_back = None if driver.two_phase else self._recheck_before_call(incident, may_have_called=True)
        if held_back is not None:
            return held_back
        return self._call_commit(incident, driver, target)

    def _too_early(self, incident: Incident) -> bool:
        return self._world.clock.monotonic() - self._repeated.get(incident.id, float("-inf")) < self._repeat_after

    def _call_commit(self, incident: Incident, driver: Driver, target: RestartTarget) -> bool:
        self._repeated[incident.id] = self._called[incident.id] = self._world.clock.monotonic()
        answer = self._call("commit", driver.commit, driver, target)
        if answer.outcome is CallOutcome.ACCEPTED:
            self._move(incident, State.VERIFYING, answer.detail)
        elif answer.outcome is CallOutcome.REFUSED and self._progress(driver, target) is RestartProgress.READY:
            self._escalate(incident, f"the scheduler refused to start it: {answer.detail}")
        else:
            self._move(incident, State.COMMITTED, answer.detail)
        return True

    def _verify(self, incident: Incident, driver: Driver) -> bool:
        target = self._target(incident)
        seen = self._progress(driver, target)
        if seen is RestartProgress.READY:
            if 0 <= self._world.clock.now() - (incident.committed or 0.0) < _FORGETS_SECONDS:
                # The scheduler lost what it had acknowledged; repeating the same start is idempotent.
                return not self._too_early(incident) and self._call_commit(incident, driver, target)
            seen = RestartProgress.STUCK  # a user holds the job
        verdict = self._verifier.verify(incident, driver.job(target.job_id), seen)
        if verdict is None:
            return False
        self._move(incident, verdict.state, verdict.detail, **verdict.changes)
        return True

    def _leave(self, incident: Incident, seen: RestartProgress) -> None:
        if seen is RestartProgress.STUCK:
            self._escalate(incident, f"{seen.value}: it does not start until a person releases it")
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
        self._called.pop(incident.id, None)
        self._repeated.pop(incident.id, None)
        self._wait_limit.forget(incident.id)
        self._metrics.settled(incident)

    def _wait(self, incident: Incident, reason: str) -> bool:
        self._wait_limit.wait(incident.id, reason)
        return False

    def _call(
        self, name: str, call: Callable[[RestartTarget], CallResult], driver: Driver, target: RestartTarget
    ) -> CallResult:
        self._crashpoint(f"{name}: before call")
        answer = call(target)
        driver.refresh()
        self._crashpoint(f"{name}: after call")
        return answer

    def _progress(self, driver: Driver, target: RestartTarget) -> RestartProgress:
        return progress(driver.job(target.job_id), target, two_phase=driver.two_phase)

    def _token_seen(self, driver: Driver, target: RestartTarget) -> bool:
        return target.incident in getattr(driver.job(target.job_id), "tokens", {})

    def _target(self, incident: Incident) -> RestartTarget:
        trust = self._checkpoint_trust(incident.policy)
        return RestartTarget(
            incident=incident.id,
            run_id=incident.run_id,
            job_id=incident.job_id or "",
            generation=incident.generation,
            reason=incident.reason,
            environment={"TRAINWARDEN_CHECKPOINT_TRUST": trust} if trust else {},
        )
