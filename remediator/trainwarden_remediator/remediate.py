"""The state machine of a restart. Every step may be interrupted; the next process carries it on from its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwarden_remediator.decide import Refuse, Wait, untouchable
from trainwarden_remediator.drivers.driver import Answer, Driver, Outcome, Progress, Subject, progress
from trainwarden_remediator.examine import INACTIVE, Objections
from trainwarden_remediator.incident import OPEN_STATES, Alert, Incident, State
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.store import Store
from trainwarden_remediator.verify import Verifier
from trainwarden_remediator.world import World

_MAX_CALLS = 5
# A controller that dies may forget what it acknowledged in its last seconds; what comes later is somebody's will.
_FORGETS_SECONDS = 60.0


class Remediator:
    """Carries open incidents on. `crashpoint` is called around every call to a scheduler; tests make it die there."""

    def __init__(
        self,
        world: World,
        store: Store,
        metrics: Metrics,
        *,
        doubt_window: float,
        repeat_after: float,
        verify_timeout: float,
        crashpoint: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._world = world
        self._store = store
        self._metrics = metrics
        self._objections = Objections(world)
        self._verifier = Verifier(world, verify_timeout)
        self._doubt_window = doubt_window
        self._repeat_after = repeat_after
        self._crashpoint = crashpoint
        # Monotonic times of our last calls. They die with the process, and then every window begins anew: it may only
        # become longer by a restart of ours, and no jump of the wall clock can shorten it.
        self._called: dict[str, float] = {}
        self._repeated: dict[str, float] = {}

    def advance(self, incident: Incident, firing: Mapping[str, Alert] | None) -> bool:
        """Do the next step, if there is one; whether anything changed. `firing` is None where that is unknown."""
        if incident.state not in OPEN_STATES:
            return False
        if incident.state is State.PROPOSED:
            return self._begin(incident, firing)
        driver = self._world.drivers.get(incident.scheduler or "")
        if driver is None:
            return False  # the intent waits until the remediator is started with that driver again
        if incident.state in (State.PREPARING, State.IN_DOUBT):
            return self._prepare(incident, driver)
        if incident.state is State.PREPARED:
            return self._commit(incident, driver)
        if incident.state is State.COMMITTED:
            return self._start(incident, driver)
        return self._verify(incident, driver)

    def failed_again(self, incident: Incident, detail: str) -> None:
        """End the verification of a restart whose new attempt is in trouble itself."""
        self._move(incident, State.FAILED, detail)

    def _begin(self, incident: Incident, firing: Mapping[str, Alert] | None) -> bool:
        if self._world.clock.now() < incident.not_before or firing is None:
            return False
        alert = _alert_of(incident, firing)
        if alert is None:
            self._withdraw(incident, INACTIVE)
            return True
        run, verdict = self._objections.against(alert)
        if verdict is None and run is not None and run.attempt_key != incident.attempt_key:
            verdict = Refuse(f"stale: the run is at {run.attempt_key}")
        if isinstance(verdict, Wait):
            return False
        if isinstance(verdict, Refuse):
            self._withdraw(incident, verdict.reason)
            return True
        problem = self._world.records.announce_restart(
            incident.run_id, incident.attempt_key or "", incident.reason, incident.id
        )
        self._move(incident, State.PREPARING, problem or "nothing speaks against it")
        return True

    def _withdraw(self, incident: Incident, reason: str) -> None:
        # What is not active now may fire again, with the same beginning; what the facts refuted may not.
        self._settled(self._store.withdraw(incident, reason, dropped=reason == INACTIVE))

    def _prepare(self, incident: Incident, driver: Driver) -> bool:
        subject = _subject(incident)
        seen = self._progress(driver, subject)
        if seen is Progress.READY and driver.two_phase and not incident.calls:
            self._leave(incident, Progress.STUCK)  # held before we ever called: the hold is somebody else's
        elif seen is Progress.READY:
            self._move(incident, State.PREPARED, seen.value)
        elif seen is Progress.UNTOUCHED:
            return self._call_prepare(incident, driver, subject)
        elif seen is Progress.UNKNOWN:
            if incident.state is State.IN_DOUBT or not incident.calls:
                return False
            self._move(incident, State.IN_DOUBT, seen.value)
        elif seen is Progress.BUSY:
            return False
        else:
            self._leave(incident, seen)
        return True

    def _call_prepare(self, incident: Incident, driver: Driver, subject: Subject) -> bool:
        if incident.calls:
            # An earlier call may still take effect. Only time and a fresh reading of the old start can rule it out.
            since = self._called.setdefault(incident.id, self._world.clock.monotonic())
            if self._world.clock.monotonic() - since < self._doubt_window:
                return False
        if incident.calls >= _MAX_CALLS:
            self._escalate(incident, f"the scheduler did not end the attempt after {incident.calls} calls")
            return True
        driver.refresh()
        verdict = untouchable(incident.run_id, incident.generation, driver.job(subject.job_id))
        if isinstance(verdict, Refuse):
            self._escalate(incident, verdict.reason)
            return True
        if isinstance(verdict, Wait):
            return False
        incident = self._move(incident, State.PREPARING, f"call {incident.calls + 1}", calls=incident.calls + 1)
        self._called[incident.id] = self._world.clock.monotonic()
        answer = self._call("prepare", driver.prepare, driver, subject)
        if answer.outcome is Outcome.ACCEPTED:
            self._move(incident, State.PREPARING, answer.detail)
        elif answer.outcome is Outcome.UNCLEAR or self._progress(driver, subject) is not Progress.UNTOUCHED:
            self._move(incident, State.IN_DOUBT, answer.detail)
        else:
            self._escalate(incident, f"the scheduler refused: {answer.detail}")
        return True

    def _commit(self, incident: Incident, driver: Driver) -> bool:
        seen = self._progress(driver, _subject(incident))
        if seen is Progress.READY:
            self._move(incident, State.COMMITTED, "the next start is ours", committed=self._world.clock.now())
        elif seen is Progress.UNTOUCHED:
            self._move(incident, State.IN_DOUBT, "the scheduler has forgotten that it ended the attempt")
        elif seen in (Progress.UNKNOWN, Progress.BUSY):
            return False
        else:
            self._leave(incident, seen)
        return True

    def _start(self, incident: Incident, driver: Driver) -> bool:
        subject = _subject(incident)
        driver.refresh()
        seen = self._progress(driver, subject)
        if seen is Progress.READY:
            return self._call_commit(incident, driver, subject)
        if seen is Progress.STARTED and (driver.two_phase or self._token_seen(driver, subject)):
            self._move(incident, State.VERIFYING, seen.value)
        elif seen in (Progress.UNKNOWN, Progress.BUSY, Progress.UNTOUCHED):
            return False
        else:
            self._leave(incident, seen)
        return True

    def _call_commit(self, incident: Incident, driver: Driver, subject: Subject) -> bool:
        now = self._world.clock.monotonic()
        if now - self._repeated.get(incident.id, float("-inf")) < self._repeat_after:
            return False
        self._repeated[incident.id] = now
        answer = self._call("commit", driver.commit, driver, subject)
        if answer.outcome is Outcome.ACCEPTED:
            self._move(incident, State.VERIFYING, answer.detail)
        elif answer.outcome is Outcome.REFUSED and self._progress(driver, subject) is Progress.READY:
            self._escalate(incident, f"the scheduler refused to start it: {answer.detail}")
        else:
            self._move(incident, State.COMMITTED, answer.detail)
        return True

    def _verify(self, incident: Incident, driver: Driver) -> bool:
        subject = _subject(incident)
        seen = self._progress(driver, subject)
        if seen is Progress.READY:
            if 0 <= self._world.clock.now() - (incident.committed or 0.0) < _FORGETS_SECONDS:
                # The scheduler lost what it had acknowledged; giving the same start again is idempotent.
                return self._call_commit(incident, driver, subject)
            seen = Progress.STUCK  # somebody holds the job on purpose
        verdict = self._verifier.verify(incident, driver.job(subject.job_id), seen)
        if verdict is None:
            return False
        self._move(incident, verdict.state, verdict.detail, **verdict.changes)
        return True

    def _leave(self, incident: Incident, seen: Progress) -> None:
        if seen is Progress.STUCK:
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
        self._metrics.settled(incident)

    def _call(self, name: str, call: Callable[[Subject], Answer], driver: Driver, subject: Subject) -> Answer:
        self._crashpoint(f"{name}: before call")
        answer = call(subject)
        driver.refresh()
        self._crashpoint(f"{name}: after call")
        return answer

    def _progress(self, driver: Driver, subject: Subject) -> Progress:
        return progress(driver.job(subject.job_id), subject, two_phase=driver.two_phase)

    def _token_seen(self, driver: Driver, subject: Subject) -> bool:
        return subject.intent in getattr(driver.job(subject.job_id), "tokens", {})


def _subject(incident: Incident) -> Subject:
    return Subject(
        intent=incident.id,
        run_id=incident.run_id,
        job_id=incident.job_id or "",
        generation=incident.generation,
        reason=incident.reason,
    )


def _alert_of(incident: Incident, firing: Mapping[str, Alert]) -> Alert | None:
    """The alert that the decision was about; a stronger one that took its place needs a decision of its own."""
    for alert in firing.values():
        about = (alert.run_id, alert.attempt, alert.label("alertname") or "")
        if about == (incident.run_id, incident.attempt, incident.alert):
            return alert
    return None
