"""From a pending alert to an incident: re-read the world, look for objections, let the policy decide."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trainwarden_remediator.decide.decide import AlertedFailure, Nothing, Restart, RestartElsewhere, StopAndPage
from trainwarden_remediator.decide.facts import Fact, facts_of, facts_of_nodes
from trainwarden_remediator.decide.verdict import Barred, Contradiction, Held, Lost, StartedAgain, Wait
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.earlier import EarlierDecisions
from trainwarden_remediator.examine.joint_page import JointPages, kind_of, without_figures
from trainwarden_remediator.examine.judge import Judge, Judged
from trainwarden_remediator.examine.objections import INACTIVE, Objections
from trainwarden_remediator.examine.witness import Witness, cpu_use
from trainwarden_remediator.incidents.alert_rows import Pending
from trainwarden_remediator.incidents.incident import OPEN_STATES, Action, Alert, Incident, State, clean, parse_key
from trainwarden_remediator.incidents.price import CONTRADICTED, NOTHING_KNOWN, Loss
from trainwarden_remediator.incidents.roots import is_better
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.notify.outbox import NOT_RESTARTED
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.score import LEAVE, RESTART, Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

# Page if an alert waits this long for a decision, as of a suspended job.
_DECISION_PATIENCE_SECONDS = 1800.0
_CONTRADICTION_SECONDS = 120.0
# Kinds of timers of an alert.
_WAITS, _CONTRADICTED, _PAGED = "waits", "contradicted", "paged"
# Nothing has been done yet: an alert that is nearer to the cause may still change the decision.
_REPLACEABLE = (State.PROPOSED, State.CAPTURING)
# A restart of one attempt that is decided and withdrawn so often is for a person, too.
_WITHDRAWALS = 5
_FLAPS = "a restart of this attempt was decided and withdrawn"


class AnotherRestart(Wait):
    """A restart of the same run is under way."""


class Examiner:
    """Turns pending alerts into incidents; calls `newer_attempt_alerts` when a restart in verification failed again."""

    def __init__(
        self,
        world: World,
        store: Store,
        policies: Policies,
        metrics: Metrics,
        timers: Timers,
        newer_attempt_alerts: Callable[[Incident, str], None],
        scores: Scores,
    ) -> None:
        self._world = world
        self._store = store
        self._policies = policies
        self._metrics = metrics
        self._newer_attempt_alerts = newer_attempt_alerts
        self._timers = timers
        self._objections = Objections(world)
        self._earlier = EarlierDecisions(world, store)
        self._witness = Witness(world, store, timers)
        self._judge = Judge(world, store, policies)
        self._scores = scores
        self._joint_pages = JointPages(store, world.clock, self._may_page)

    def examine(self, pending: Pending, firing: Mapping[str, Alert]) -> bool:
        """Decide about one alert, given the firing alerts of Alertmanager; return False if it has to wait."""
        alert = pending.alert
        if alert.key not in firing:
            self._suppress(pending, None, INACTIVE, dropped=True)
            self._timers.forget(alert.key)
            return True
        run, verdict = self._objections.against(alert)
        replaced = None
        if run is not None and (verdict is None or isinstance(verdict, StartedAgain)):
            replaced = self._earlier.open_restart(run, alert.cluster)
            if replaced is not None and not (replaced.state in _REPLACEABLE and is_better(alert, replaced)):
                self._timers.forget(alert.key)
                self._store.join(pending, replaced)
                return True
            verdict = (
                self._earlier.against(run, alert.cluster) or verdict or self._unfinished_restart(run, alert, replaced)
            )
        if run is not None and verdict is None:
            # What is replaced was witnessed: it must not be carried out while another alert waits for that anew.
            verdict = (self._witness.against(alert, run) if replaced is None else None) or self._earlier.unrecorded(run)
        decided = None
        if run is not None and verdict is None:
            decided = self._earlier.refusal_by_root(alert, run, firing)
        if decided is not None:
            self._timers.forget(alert.key)
            self._store.join(pending, decided)
            return True
        judged = None
        if run is not None and verdict is None:
            judged = self._judge.judge(alert, run, replaced.id if replaced else None)
        if judged is not None and isinstance(judged.decision, Wait):
            verdict = judged.decision
        if isinstance(verdict, Wait):
            self._page_if_expired(pending, run, verdict)
            self._note_wait(pending, run, verdict)
            return False
        self._timers.forget(alert.key)
        if replaced is not None and verdict is None:
            self._replace(replaced, alert)
        if isinstance(verdict, Lost) and run is not None and (idle := self._idle(alert, run)) is not None:
            verdict = Barred(f"{verdict.reason}; {idle}")
        if isinstance(verdict, Lost):
            self._page(pending, run, verdict.reason)
        elif verdict is not None or run is None:
            kind = NOT_RESTARTED if isinstance(verdict, Barred) else None
            self._suppress(pending, run, verdict.reason if verdict else "", kind=kind)
        elif judged is not None and not isinstance(judged.decision, Wait):
            self._record(pending, run, judged, judged.decision)
        return True

    def _idle(self, alert: Alert, run: ReportedRun) -> str | None:
        """Return why nobody expects the remediator to bring a run back: its policy does not, or is only observed."""
        choice = self._policies.of(run.run_id, run.policy)
        if not choice.policy.restarts_after(alert.mode or ""):
            return f"policy {choice.policy.name} never restarts after a {alert.mode}"
        return self._policies.observed(run.run_id, choice)

    def _note_wait(self, pending: Pending, run: ReportedRun | None, wait: Wait) -> None:
        """Note what an alert waits for, where that has changed; what people have switched is a decision, too."""
        alert, before, reason = pending.alert, pending.waits_for or "", clean(wait.reason)
        if reason == before:
            return
        self._store.wait(alert, reason)
        if without_figures(reason) == without_figures(before):
            return
        log.info("run %s: %s waits: %s", alert.run_id, alert.label("alertname"), wait.reason)
        if isinstance(wait, Held):
            self._suppress(pending, run, wait.reason, kind=NOT_RESTARTED, answered=False)

    def _page_if_expired(self, pending: Pending, run: ReportedRun | None, wait: Wait) -> None:
        """Page once where an alert has waited too long, as of a suspended job; the alert goes on waiting.

        The time of another restart does not count: that pages by itself. Nor does one that a person has planned, nor
        that of a run that would not be restarted anyway.
        """
        key = pending.alert.key
        is_idle = run is not None and self._idle(pending.alert, run) is not None
        if is_idle or isinstance(wait, AnotherRestart | Held):
            self._timers.forget(key, _WAITS, _CONTRADICTED)
            self._metrics.excuse(key, excused=True)
            return
        waited = self._timers.wait(key, _WAITS, wait.reason)
        # One that comes and goes, as of a run whose steps take longer than the quiet minute, is the same one.
        if isinstance(wait, Contradiction) and self._timers.wait(key, _CONTRADICTED) >= _CONTRADICTION_SECONDS:
            self._page_once(pending, run, wait.reason, by_facts=wait.by_facts)
        if waited >= _DECISION_PATIENCE_SECONDS:
            self._page_expired(pending, run, wait.reason)
        self._metrics.excuse(key, excused=self._timers.elapsed(key, _PAGED) is not None)

    def _page_expired(self, pending: Pending, run: ReportedRun | None, waits_for: str) -> None:
        """Page once about an alert that has waited too long, together with those of other runs that wait like it."""
        if not self._may_page(pending):
            return
        minutes = f"{_DECISION_PATIENCE_SECONDS / 60:g} minutes"
        for each in self._joint_pages.page(pending, waits_for, minutes):
            self._timers.wait(each.alert.key, _PAGED)
        self._page_once(pending, run, f"nothing could be done for {minutes}: {waits_for}")

    def _may_page(self, pending: Pending) -> bool:
        """Return whether a person is to read of an alert that waits, and has not yet."""
        key = pending.alert.key
        return self._timers.elapsed(key, _WAITS) is not None and self._timers.elapsed(key, _PAGED) is None

    def _page_once(self, pending: Pending, run: ReportedRun | None, reason: str, *, by_facts: bool = False) -> None:
        """Page, unless this wait has paged already."""
        if self._timers.elapsed(pending.alert.key, _PAGED) is None:
            self._timers.wait(pending.alert.key, _PAGED)
            self._page(pending, run, reason, answered=False, by_facts=by_facts)

    def _page(
        self,
        pending: Pending,
        run: ReportedRun | None,
        reason: str,
        *,
        answered: bool = True,
        by_facts: bool = False,
    ) -> None:
        decision = StopAndPage(reason)
        failure = AlertedFailure(pending.alert.mode or "unknown", pending.alert.label("error_type"))
        about = _about(pending.alert, run)
        approval = CONTRADICTED if by_facts else ""
        self._propose(pending, about, decision, failure, State.ESCALATED, answered=answered, approval=approval)

    def _page_if_it_flaps(self, pending: Pending, run: ReportedRun, withdrawn: Sequence[Incident]) -> None:
        """Page once where decisions are withdrawn again and again; the next is made all the same."""
        if len(withdrawn) < _WITHDRAWALS:
            return
        of_run = self._store.of_run(run.run_id, pending.alert.cluster)
        if any(each.attempt_key == run.attempt_key and each.reason.startswith(_FLAPS) for each in of_run):
            return
        why = f"{_FLAPS} {len(withdrawn)} times, last because: {withdrawn[-1].reason}"
        self._page(pending, run, why, answered=False)

    def _replace(self, incident: Incident, alert: Alert) -> None:
        """Withdraw a restart that is not begun: an alert that is nearer to the cause decides; the others join it."""
        reason = f"decided anew: {alert.label('alertname')} is nearer to the cause than {incident.alert}"
        self._metrics.settled(self._store.withdraw(incident, reason, dropped=True))
        self._timers.forget(incident.id)

    def _unfinished_restart(self, run: ReportedRun, alert: Alert, replaced: Incident | None) -> Wait | None:
        for earlier in self._earlier.restarts(run, alert.cluster):
            if replaced is not None and earlier.id == replaced.id:
                continue
            if earlier.state is State.VERIFYING:
                name = alert.label("alertname")
                self._newer_attempt_alerts(earlier, f"attempt {run.attempt} fails again: {name}")
            elif earlier.state in OPEN_STATES:
                return AnotherRestart(f"incident {earlier.id} of the same run is {earlier.state.value}")
        return None

    def _record(
        self, pending: Pending, run: ReportedRun, judged: Judged, decision: Restart | StopAndPage | Nothing
    ) -> None:
        state = {
            Action.RESTART: State.PROPOSED,
            Action.ESCALATE: State.ESCALATED,
            Action.NONE: State.SUPPRESSED,
        }[decision.action]
        if isinstance(decision, Restart) and (withdrawn := self._earlier.withdrawn(run, pending.alert.cluster)):
            self._page_if_it_flaps(pending, run, withdrawn)
            # The delay counts from the first decision: alerts that come and go put a restart off no further.
            earliest = min(each.not_before for each in withdrawn)
            decision = replace(decision, not_before=min(decision.not_before, earliest))
        by = self._store.answers.approved_against_facts(
            run.run_id, pending.alert.cluster, run.attempt_key, run.high_water
        )
        if isinstance(decision, Restart) and by is not None:
            decision = replace(decision, reason=f"{decision.reason}; {by} has approved it against other facts")
        # By no budget: of a policy that restarts nothing of the kind, or is only observed.
        kind = NOT_RESTARTED if isinstance(decision, Nothing) and decision.limit is None else None
        written = self._propose(pending, run, decision, judged.failure, state, kind=kind, loss=judged.loss)
        if written is not None and judged.objection:
            log.warning("run %s: %s", run.run_id, judged.objection)
        if written is not None and isinstance(decision, Nothing):
            self._scores.note(written, RESTART if decision.would else LEAVE)

    def _suppress(
        self,
        pending: Pending,
        run: ReportedRun | None,
        reason: str,
        *,
        dropped: bool = False,
        answered: bool = True,
        kind: str | None = None,
    ) -> None:
        alert = pending.alert
        failure = AlertedFailure(alert.mode or "unknown", alert.label("error_type"))
        decision = Nothing(reason)
        about = _about(alert, run)
        state = State.SUPPRESSED
        self._propose(pending, about, decision, failure, state, dropped=dropped, answered=answered, kind=kind)

    def _propose(
        self,
        pending: Pending,
        run: ReportedRun | None,
        decision: Restart | StopAndPage | Nothing,
        failure: AlertedFailure,
        state: State,
        *,
        dropped: bool = False,
        answered: bool = True,
        approval: str = "",
        kind: str | None = None,
        loss: Loss = NOTHING_KNOWN,
    ) -> Incident | None:
        """Record the decision; return None if it is on record already, or the alert joins the page of another one."""
        alert = pending.alert
        run_id = alert.run_id or alert.label("run_id") or ""
        if state is State.ESCALATED and (page := self._page_of(alert, run, decision.reason, approval)) is not None:
            self._store.join(pending, page, answered=answered)
            return None
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
            not_before=decision.not_before if isinstance(decision, Restart) else 0.0,
            paging=decision.action is Action.ESCALATE or _needs_a_person(decision),
            checkpoint_step=run.checkpoint_step if run else None,
            exclude_nodes=json.dumps(dict(decision.exclude_nodes)) if isinstance(decision, RestartElsewhere) else "",
            exclude_hours=decision.hours if isinstance(decision, RestartElsewhere) else None,
            cluster=alert.cluster,
            approval=str(decision.approval or "") if isinstance(decision, Restart) else approval,
            lost_gpu_hours=loss.of_acting,
            held_gpus=0.0 if loss.ended else loss.gpus,
            subsystem=failure.subsystem,
            signal=failure.signal,
        )
        known = self._facts(incident, run)
        written = self._store.propose(pending, incident, known, dropped=dropped, answered=answered, kind=kind)
        if written is not None:
            self._metrics.decided(written)
        return written

    def _page_of(self, alert: Alert, run: ReportedRun | None, reason: str, approval: str) -> Incident | None:
        """Return the open page of the same attempt for the same kind of reason, whichever alert it was decided by."""
        key = run.attempt_key if run and parse_key(run.attempt_key) else None
        for each in self._store.escalations():
            same_attempt = (each.run_id, each.attempt, each.attempt_key) == (alert.run_id, alert.attempt, key)
            same_kind = approval == each.approval and (bool(approval) or kind_of(reason) == kind_of(each.reason))
            if same_attempt and same_kind and each.state is State.ESCALATED and each.cluster in ("", alert.cluster):
                return each
        return None

    def _facts(self, incident: Incident, run: ReportedRun | None) -> tuple[Fact, ...]:
        """Return what is known about the attempt of a decision."""
        if run is None or incident.attempt_key is None:
            return ()
        driver = self._world.drivers.get(incident.scheduler or "")
        reading = driver.job(incident.job_id or "") if driver else None
        nodes = self._world.nodes.of_run(run.run_id) if incident.action is Action.RESTART else Unknown("not needed")
        suspects = () if isinstance(nodes, Unknown) else facts_of_nodes(nodes.suspects)
        cpu = cpu_use(self._world, incident.failure_mode, run)
        return (*suspects, *facts_of(incident.failure_mode, run, reading, self._world.clock.now(), cpu))


def _about(alert: Alert, run: ReportedRun | None) -> ReportedRun | None:
    """Return the run if the alert is about its present attempt: not one of the same name in another cluster."""
    same = run is not None and alert.attempt == run.attempt and alert.is_of_cluster(run.cluster)
    return run if same else None


def _needs_a_person(decision: Restart | StopAndPage | Nothing) -> bool:
    """Return whether a restart waits for an approval: a person is paged for that."""
    approval = decision.approval if isinstance(decision, Restart) else None
    return approval is not None and approval.veto_seconds is None
