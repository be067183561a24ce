"""One decision about one run: reads what surrounds its failure, then decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwarden_remediator.canary_job.canary_job import RUN_ID as CANARY_JOB
from trainwarden_remediator.decide.decide import AlertedFailure, Circumstances, Decision, decide
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.choice import Choice, Policies
from trainwarden_remediator.incidents.history import history_of
from trainwarden_remediator.incidents.incident import Alert
from trainwarden_remediator.incidents.price import NOTHING_KNOWN, Loss
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store

_HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class Judged:
    """A decision, about which failure, by which policy; `objection`: why not by the one that the record requests.

    `loss` is that of ending the attempt, whatever was decided.
    """

    decision: Decision
    failure: AlertedFailure
    policy: str
    objection: str | None = None
    loss: Loss = NOTHING_KNOWN


class Judge:
    """Decides about runs by their policies."""

    def __init__(self, world: World, store: Store, policies: Policies) -> None:
        self._world = world
        self._store = store
        self._policies = policies

    def judge(self, alert: Alert, run: ReportedRun, replaced: str | None = None) -> Judged:
        """Decide about the failure that an alert reports of a run. The alert must be one of its present attempt.

        `replaced` is the incident in whose place the decision is made: its restart counts in no budget.
        """
        choice = self._policies.of(run.run_id, run.policy)
        failure = AlertedFailure(
            mode=alert.mode or "",
            error_type=alert.label("error_type") or run.error_type,
            subsystem=alert.label("subsystem") or run.subsystem,
            signal=run.failure or alert.label("signal"),
        )
        past = self._store.past_restarts(run.run_id, alert.cluster, replaced)
        history = history_of(past, failure.mode, failure.error_type, run.high_water, run.checkpoint_step)
        around = self._around(alert, run, choice, replaced)
        if isinstance(around, Unknown):
            return Judged(Wait(around.reason), failure, choice.policy.name)
        decision = decide(failure, history, choice.policy, self._world.clock.now(), around)
        if choice.objection:
            decision = replace(decision, reason=f"{decision.reason}; {choice.objection}")
        return Judged(decision, failure, choice.policy.name, choice.objection, around.loss)

    def _around(self, alert: Alert, run: ReportedRun, choice: Choice, replaced: str | None) -> Circumstances | Unknown:
        now = self._world.clock.now()
        nodes = self._world.nodes.of_run(run.run_id)
        if isinstance(nodes, Unknown):
            return nodes
        price = self._world.prices.of_run(run.run_id)
        if isinstance(price, Unknown):
            return price
        return Circumstances(
            seed=f"{run.run_id}:{run.attempt_key}",
            frozen=self._store.switches.frozen(run.run_id),
            fleet=self._store.restarts_since(now - _HOUR_SECONDS, alert.cluster, leave_out=CANARY_JOB, but=replaced),
            suspects=nodes.suspects,
            cluster_nodes=nodes.known,
            observed=self._policies.observed(run.run_id, choice),
            loss=Loss(
                run.high_water,
                run.checkpoint_step,
                price.get("gpu_hours"),
                price.get("gpus"),
                ended=self._world.has_ended(run.attempt_key),
            ),
        )
