"""From a pending alert to an incident: re-read the world, look for objections, let the policy decide."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainwarden_remediator.choice import Policies
from trainwarden_remediator.decide import (
    AlertedFailure,
    Decision,
    History,
    Refuse,
    StartedAgain,
    Wait,
    decide,
    label_problem,
    scheduler_objection,
    stale,
)
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.evidence import ReportedRun
from trainwarden_remediator.incident import OPEN_STATES, Action, Alert, Incident, State, parse_key
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.store import Pending, Store
from trainwarden_remediator.wait_limit import WaitLimit
from trainwarden_remediator.world import World

log = logging.getLogger(__name__)

INACTIVE = "Alertmanager does not list it as active: resolved, silenced or inhibited"
_IN_PLACE_SECONDS = 60.0
_PATIENCE_SECONDS = 1800.0
# Until the start is given, a restart may still turn out to be unnecessary: another alert waits for that.
_REVOCABLE = frozenset(OPEN_STATES) - {State.VERIFYING}


@dataclass(frozen=True)
class Objections:
    """The checks before a decision, repeated right before the first call."""

    world: World

    def against(self, alert: Alert) -> tuple[ReportedRun | None, Wait | Refuse | None]:
        """Return the run as it is now, where known, and the objection to touching it, if any."""
        if reason := label_problem(alert):
            return None, Refuse(reason)
        assert alert.run_id is not None  # noqa: S101  # label_problem() refuses it
        run = self.world.runs.run(alert.run_id)
        if verdict := stale(alert, run):
            return (run if isinstance(run, ReportedRun) else None), verdict
        assert isinstance(run, ReportedRun)  # noqa: S101  # stale() refuses anything else
        return run, self._of_run(run)

    def _of_run(self, run: ReportedRun) -> Wait | Refuse | None:
        key = parse_key(run.attempt_key)
        assert key is not None  # noqa: S101  # stale() refuses it
        if self.world.records.complete(run):
            return Refuse("the record says that the attempt is complete")
        driver = self.world.drivers.get(key.scheduler)
        if driver is None:
            return Refuse(f"no driver for scheduler {key.scheduler!r}")
        return scheduler_objection(run.run_id, key.generation, driver.job(key.job_id), run.failure)


class Examiner:
    """Turns pending alerts into incidents; calls `newer_attempt_alerts` when a restart in verification failed again."""

    def __init__(
        self,
        world: World,
        store: Store,
        policies: Policies,
        metrics: Metrics,
        newer_attempt_alerts: Callable[[Incident, str], None],
    ) -> None:
        self._world = world
        self._store = store
        self._policies = policies
        self._metrics = metrics
        self._newer_attempt_alerts = newer_attempt_alerts
        self._objections = Objections(world)
        self._wait_limit = WaitLimit(world.clock, _PATIENCE_SECONDS)

    def examine(self, pending: Pending, firing: Mapping[str, Alert]) -> bool:
        """Decide about one alert, given the firing alerts of Alertmanager; return False if it has to wait."""
        alert = pending.alert
        if alert.key not in firing:
            self._suppress(pending, None, INACTIVE, dropped=True)
            return True
        run, verdict = self._objections.against(alert)
        if run is not None and isinstance(verdict, Wait):
            self._page_if_expired(pending, run, verdict.reason)
        else:
            self._wait_limit.forget(alert.key)
        if run is not None and (verdict is None or isinstance(verdict, StartedAgain)):
            verdict = self._decided_already(run) or verdict or self._unfinished_restart(run, alert)
        if run is not None and verdict is None:
            verdict = self._recovers_in_place(pending, run)
        if isinstance(verdict, Wait):
            if pending.waits_for != verdict.reason:
                self._store.wait(alert, verdict.reason)
            return False
        if verdict is not None or run is None:
            self._suppress(pending, run, verdict.reason if verdict else "")
            return True
        self._decide(pending, run)
        return True

    def _page_if_expired(self, pending: Pending, run: ReportedRun, reason: str) -> None:
        """Page once an alert has waited too long, as of a suspended job; the alert goes on waiting."""
        key = pending.alert.key
        self._wait_limit.wait(key, reason)
        if why := self._wait_limit.expired(key):
            self._wait_limit.forget(key)
            decision = Decision(Action.ESCALATE, why, 0, None, 0.0)
            failure = AlertedFailure(pending.alert.mode or "unknown", pending.alert.label("error_type"))
            about = run if pending.alert.attempt == run.attempt else None
            self._propose(pending, about, decision, failure, State.ESCALATED, answered=False)

    def _decided_already(self, run: ReportedRun) -> Refuse | None:
        for earlier in self._restarts(run):
            if earlier.attempt_key == run.attempt_key and earlier.state not in _REVOCABLE:
                return Refuse(
                    f"this attempt has been restarted by the remediator itself already: "
                    f"incident {earlier.id} is {earlier.state.value}"
                    if earlier.committed is not None
                    else f"a restart of this attempt was decided already: "
                    f"incident {earlier.id} is {earlier.state.value}, {earlier.reason}"
                )
        return None

    def _unfinished_restart(self, run: ReportedRun, alert: Alert) -> Wait | None:
        for earlier in self._restarts(run):
            if earlier.state is State.VERIFYING:
                name = alert.label("alertname")
                self._newer_attempt_alerts(earlier, f"attempt {run.attempt} fails again: {name}")
            elif earlier.state in OPEN_STATES:
                return Wait(f"incident {earlier.id} of the same run is {earlier.state.value}")
        return None

    def _recovers_in_place(self, pending: Pending, run: ReportedRun) -> Wait | None:
        """Wait while the job still runs after a crash: an elastic launcher may restart its ranks."""
        key, now = parse_key(run.attempt_key), self._world.clock.now()
        if pending.alert.mode != "crash" or key is None or not 0 <= now - pending.received < _IN_PLACE_SECONDS:
            return None
        reading = self._world.drivers[key.scheduler].job(key.job_id)
        runs = isinstance(reading, ScheduledJob) and reading.state is JobState.RUNNING
        return Wait(f"job {key.job_id} still runs: it may recover by itself") if runs else None

    def _restarts(self, run: ReportedRun) -> list[Incident]:
        return [each for each in self._store.of_run(run.run_id) if each.action is Action.RESTART]

    def _decide(self, pending: Pending, run: ReportedRun) -> None:
        alert = pending.alert
        failure = AlertedFailure(
            mode=alert.mode or "",
            error_type=alert.label("error_type") or run.error_type,
            subsystem=alert.label("subsystem") or run.subsystem,
            signal=run.failure,
        )
        history = History(self._store.used(run.run_id))
        choice = self._policies.of(run.run_id, run.policy)
        decision = decide(failure, history, choice.policy, self._world.clock.now())
        if choice.objection:
            decision = replace(decision, reason=f"{decision.reason}; {choice.objection}")
        if self._record(pending, run, decision, failure) and choice.objection:
            log.warning("run %s: %s", run.run_id, choice.objection)

    def _record(self, pending: Pending, run: ReportedRun, decision: Decision, failure: AlertedFailure) -> bool:
        state = {
            Action.RESTART: State.PROPOSED,
            Action.ESCALATE: State.ESCALATED,
            Action.NONE: State.SUPPRESSED,
        }[decision.action]
        return self._propose(pending, run, decision, failure, state)

    def _suppress(self, pending: Pending, run: ReportedRun | None, reason: str, *, dropped: bool = False) -> None:
        alert = pending.alert
        failure = AlertedFailure(alert.mode or "unknown", alert.label("error_type"))
        decision = Decision(Action.NONE, reason, 0, None, 0.0)
        about = run if run is not None and alert.attempt == run.attempt else None
        self._propose(pending, about, decision, failure, State.SUPPRESSED, dropped=dropped)

    def _propose(
        self,
        pending: Pending,
        run: ReportedRun | None,
        decision: Decision,
        failure: AlertedFailure,
        state: State,
        *,
        dropped: bool = False,
        answered: bool = True,
    ) -> bool:
        """Record the decision; return False if it is on record already."""
        alert = pending.alert
        run_id = alert.run_id or alert.label("run_id") or ""
        key = parse_key(run.attempt_key) if run else None
        incident = Incident(
            id=uuid.uuid4().hex,
            run_id=run_id,
            attempt=alert.attempt,
            attempt_key=run.attempt_key if run and key else None,
            job_id=key.job_id if key else alert.label("job_id"),
            scheduler=key.scheduler if key else alert.label("scheduler"),
            alert=alert.label("alertname") or "",
            failure_mode=failure.mode,
            error_type=failure.error_type,
            state=state,
            action=decision.action,
            reason=decision.reason,
            policy=self._policies.of(run_id, run.policy if run else None).policy.name,
            budget_used=decision.used if decision.limit is not None else None,
            budget_limit=decision.limit,
            step_before=run.high_water if run else None,
            created=pending.received,
            updated=self._world.clock.now(),
            not_before=decision.not_before,
            paging=decision.action is Action.ESCALATE,
        )
        written = self._store.propose(pending, incident, dropped=dropped, answered=answered)
        if written is not None:
            self._metrics.decided(written)
        return written is not None


def firing_by_key(firing: list[Alert] | Unknown) -> dict[str, Alert] | None:
    """Return the firing alerts by key; None where they are unknown."""
    return None if isinstance(firing, Unknown) else {alert.key: alert for alert in firing}


class Recheck:
    """Checks again right before an attempt is ended, for the run may have recovered since the decision.

    Reads Alertmanager, Prometheus and the scheduler again; nothing that was read earlier in the tick counts.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._objections = Objections(world)

    def against(self, incident: Incident) -> Wait | Refuse | None:
        """Return why the attempt of the incident must not be ended now; None if nothing forbids it."""
        firing = self._world.alerts.firing()
        if isinstance(firing, Unknown):
            return Wait(firing.reason)
        alert = _alert_of(incident, firing)
        if alert is None:
            return Refuse(INACTIVE)
        run, verdict = self._objections.against(alert)
        if verdict is not None or run is None:
            return verdict
        if run.attempt_key != incident.attempt_key:
            return Refuse(f"stale: the run is at {run.attempt_key}")
        return _recovered(incident, run)


def _alert_of(incident: Incident, firing: Sequence[Alert]) -> Alert | None:
    """Return the alert of the decision; a stronger one that replaced it needs a decision of its own."""
    for alert in firing:
        about = (alert.run_id, alert.attempt, alert.label("alertname") or "")
        if about == (incident.run_id, incident.attempt, incident.alert):
            return alert
    return None


def _recovered(incident: Incident, run: ReportedRun) -> Refuse | None:
    """Refuse if the step has passed that of the decision. Only the run's state disproves a crash."""
    if incident.failure_mode == "crash" or run.high_water is None or incident.step_before is None:
        return None
    if run.high_water <= incident.step_before:
        return None
    return Refuse(f"the run goes on by itself: step {run.high_water:g} after {incident.step_before:g}")
