"""The decision of a policy about a failed attempt, without clock, network or database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from trainwarden.record.clock import to_iso
from trainwarden_remediator.decide.verdict import Held, Wait
from trainwarden_remediator.incidents.history import COSTLESS, History
from trainwarden_remediator.incidents.incident import Action
from trainwarden_remediator.incidents.price import NOTHING_KNOWN, Approval, Loss
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Implementation
from trainwarden_remediator.policies.vocabulary import covers_error_type, covers_signal, covers_subsystem

# A preemption costs no budget, and that it was one may be a claim of the run alone.
_MAX_COSTLESS = 10


@dataclass(frozen=True)
class AlertedFailure:
    """The failure, as a policy matches it."""

    mode: str
    error_type: str | None = None
    subsystem: str | None = None
    signal: str | None = None


@dataclass(frozen=True)
class _Decided:
    """A decision and its reason. `used` of `limit` restarts are spent; None where the policy has no such budget."""

    reason: str
    used: int = 0
    limit: int | None = None


@dataclass(frozen=True)
class Restart(_Decided):
    """Restart the run, not before that Unix time.

    `loss`: what it loses; `approval`: what a person must or may do before it, None where it needs nobody.
    """

    action: ClassVar[Action] = Action.RESTART
    not_before: float = 0.0
    loss: Loss = NOTHING_KNOWN
    approval: Approval | None = None


@dataclass(frozen=True)
class RestartElsewhere(Restart):
    """Restart it away from these nodes, each with the Unix time of the evidence against it, for `hours` after that."""

    exclude_nodes: Mapping[str, float] = field(default_factory=dict)
    hours: float | None = None


@dataclass(frozen=True)
class StopAndPage(_Decided):
    """Do nothing, and page a person."""

    action: ClassVar[Action] = Action.ESCALATE


@dataclass(frozen=True)
class Nothing(_Decided):
    """Do nothing. `would`: what it would be if the policy were acted upon."""

    action: ClassVar[Action] = Action.NONE
    would: Restart | None = None


Decision = Restart | RestartElsewhere | StopAndPage | Nothing | Wait


@dataclass(frozen=True)
class Circumstances:
    """What surrounds a failure, beside the run's own history.

    Attributes:
        seed: names the attempt; the jitter of its delay depends on it.
        frozen: why nothing may be restarted now; None where it may.
        fleet: when restarts of any run were decided within the last hour, Unix time.
        suspects: nodes of the run that have evidence of a defect, each with that evidence.
        cluster_nodes: how many nodes the cluster has; None where that is unknown.
        observed: why a restart is only written down; None where it is made.
        loss: what a restart would lose.
    """

    seed: str = ""
    frozen: str | None = None
    fleet: tuple[float, ...] = ()
    suspects: Mapping[str, str] = field(default_factory=dict)
    cluster_nodes: int | None = None
    observed: str | None = None
    loss: Loss = NOTHING_KNOWN


QUIET = Circumstances()


def decide(
    failure: AlertedFailure, history: History, policy: Policy, now: float, around: Circumstances = QUIET
) -> Decision:
    """Decide by budgets, excluded types, included types and default, in this order; N retries mean N.

    A restart that is wanted may have to wait for the fleet, or avoid nodes.
    """
    rule = policy.rules.get(failure.mode)
    used = history.used.get(failure.mode, 0)
    if rule is None or rule.class_name == "NoRestartPolicy":
        reason = f"policy {policy.name} never restarts after a {failure.mode}"
        return Nothing(_in_words(rule, reason, restarts=False), used)
    spent = _in_vain(history) if failure.error_type in COSTLESS else _spent(failure, history, policy, rule, now)
    if spent is not None:
        return spent
    wanted, reason = _wanted(policy.name, rule, failure)
    reason = _in_words(rule, reason, restarts=wanted)
    if not wanted:
        return Nothing(reason, used, rule.max_retries)
    if (held := _held(policy.limits, now, around)) is not None:
        return held
    delay = rule.restart_delay_seconds.delay(used, around.seed) if rule.restart_delay_seconds else 0.0
    restart = _priced(Restart(reason, used, rule.max_retries, now + delay, around.loss), policy.limits)
    decision = _avoiding(restart, history, policy, now, around)
    elsewhere = covers_error_type(rule.restart_elsewhere_on_error_types, failure.error_type)
    if elsewhere and isinstance(decision, Restart) and not isinstance(decision, RestartElsewhere):
        why = "there is no evidence of which"
        if around.suspects:
            why = f"the policy excludes no nodes (limits: exclude_nodes), such as {', '.join(sorted(around.suspects))}"
        what = f"{failure.error_type} is a defect of a node, and {why}"
        decision = StopAndPage(f"{what}: a restart may find the same one again", used, rule.max_retries)
    if around.observed is None or not isinstance(decision, Restart):
        return decision
    return Nothing(f"{around.observed}: it would be restarted, for {decision.reason}", used, None, decision)


def _spent(
    failure: AlertedFailure, history: History, policy: Policy, rule: Implementation, now: float
) -> StopAndPage | None:
    """Return the decision where a budget is used up."""
    limits, used = policy.limits, history.used.get(failure.mode, 0)
    if used >= rule.max_retries:
        reason = f"restart budget used up: {used} of {rule.max_retries} after a {failure.mode}"
        return StopAndPage(reason, used, rule.max_retries)
    if limits.restarts is not None and len(history.made) >= limits.restarts:
        reason = f"restart budget used up: {len(history.made)} of {limits.restarts} after failures of all kinds"
        return StopAndPage(reason, len(history.made), limits.restarts)
    window = limits.window
    if window is not None and (lately := history.since(now - window.hours * 3600)) >= window.restarts:
        reason = f"restart budget used up: {lately} of {window.restarts} within {window.hours:g} hours"
        return StopAndPage(reason, lately, window.restarts)
    if limits.same_cause is not None and history.same_cause >= limits.same_cause:
        cause = f"a {failure.mode}" + (f" by {failure.error_type}" if failure.error_type else "")
        reason = f"{history.same_cause} restarts after {cause}, and no newer checkpoint is reported since"
        return StopAndPage(reason, history.same_cause, limits.same_cause)
    most = max(each.max_retries for each in policy.rules.values() if each.class_name != "NoRestartPolicy")
    if history.fruitless >= most:
        reason = f"{history.fruitless} restarts after failures of all kinds, and the run has gained no step since"
        return StopAndPage(reason, history.fruitless, most)
    return None


def _in_vain(history: History) -> StopAndPage | None:
    """Return the decision where a run is ended again and again before its first step: its record may be wrong."""
    if history.costless < _MAX_COSTLESS:
        return None
    reason = f"{history.costless} restarts after preemptions or time limits, and the run has gained no step since"
    return StopAndPage(reason, history.costless, _MAX_COSTLESS)


def _held(limits: Limits, now: float, around: Circumstances) -> Wait | None:
    """Return why no run is restarted now; None if this one may be."""
    if around.frozen is not None:
        return Held(around.frozen)
    if (until := limits.maintained_until(now)) is not None:
        return Held(f"maintenance until {to_iso(until)}: nothing is restarted before")
    most = limits.restarts_per_hour
    if most is not None and len(around.fleet) >= most:
        if most == 0:
            return Wait("limits.restarts_per_hour of the policy is 0")
        next_at = sorted(around.fleet)[len(around.fleet) - most] + 3600
        return Wait(
            f"{len(around.fleet)} of {most} restarts of all runs within an hour: the next one at {to_iso(next_at)}"
        )
    return None


def _priced(restart: Restart, limits: Limits) -> Restart:
    """Return the restart with what it loses in its reason, and with the approval that this needs."""
    loss, most = restart.loss, limits.approval_above_gpu_hours
    reason = "; ".join(filter(None, (restart.reason, str(loss))))
    price = loss.of_acting
    if most is None or (price is not None and price <= most):
        return replace(restart, reason=reason)
    what = "its price is unknown" if price is None else f"{price:.3g} GPU hours"
    asked = f"{what}, and more than {most:g} GPU hours need "
    if limits.veto_seconds is None:
        asked += "a person: trainwarden-remediator approve or veto"
    else:
        asked += f"{limits.veto_seconds:g} s in which a person may veto: trainwarden-remediator veto or approve"
    return replace(restart, reason=f"{reason}; {asked}", approval=Approval(limits.veto_seconds))


def _avoiding(restart: Restart, history: History, policy: Policy, now: float, around: Circumstances) -> Decision:
    """Return the restart, away from the nodes that have evidence of a defect; a page where they are too many."""
    limit = policy.limits.exclude_nodes
    evidence = ", ".join(f"{node} ({why})" for node, why in sorted(around.suspects.items()))
    if limit is None:
        if not evidence:
            return restart
        return replace(
            restart, reason=f"{restart.reason}; the policy excludes no nodes, and there is evidence of {evidence}"
        )
    nodes = {node: at for node, at in history.excluded.items() if at > now - limit.hours * 3600}
    nodes |= dict.fromkeys(around.suspects, now)
    if not nodes:
        return restart
    known = around.cluster_nodes
    most = min(limit.at_most, 1 if known is None else _share(limit.share, known))
    if len(nodes) > most:
        bound = f"{limit.share:.0%} of {known}" if known is not None else "the size of the cluster is unknown"
        reason = f"{len(nodes)} nodes are to be avoided, and at most {most} may be ({limit.at_most} of a run, {bound})"
        return StopAndPage(f"{reason}: {evidence or ', '.join(sorted(nodes))}", restart.used, restart.limit)
    kept = sorted(nodes.keys() - around.suspects.keys())
    parts = ([f"away from {evidence}"] if evidence else []) + ([f"still away from {', '.join(kept)}"] if kept else [])
    reason = f"{restart.reason}; {', '.join(parts)}"
    moved = {**vars(restart), "reason": reason}
    return RestartElsewhere(**moved, exclude_nodes=nodes, hours=limit.hours)


def _share(share: float, known: int) -> int:
    """Return how many of `known` nodes a share is: at least one, unless that is all there are."""
    return max(int(share * known), min(1, known - 1))


def _in_words(rule: Implementation | None, reason: str, *, restarts: bool) -> str:
    """Return the reason after the words that the policy file has for it: they state no fact by themselves."""
    words = rule.words(restarts=restarts) if rule else None
    return f"{words} ({reason})" if words else reason


def _wanted(policy: str, rule: Implementation, failure: AlertedFailure) -> tuple[bool, str]:
    kind = failure.error_type
    if rule.class_name == "AlwaysRestartPolicy":
        return True, f"policy {policy} restarts after every {failure.mode}"
    if covers_error_type(rule.exclude_error_types, kind):
        return False, f"the error type {kind} is excluded by policy {policy}: a restart would not help"
    if covers_signal(rule.exclude_signals, failure.signal, kind):
        return False, f"the failure {failure.signal} is excluded by policy {policy}: a restart would not help"
    if covers_error_type(rule.restart_on_error_types, kind):
        return True, f"policy {policy} restarts after errors of the type {kind}"
    if covers_error_type(rule.restart_elsewhere_on_error_types, kind):
        return True, f"policy {policy} restarts after errors of the type {kind} on other nodes"
    if covers_subsystem(rule.restart_on_subsystems, failure.subsystem):
        return True, f"policy {policy} restarts after failures of the subsystem {failure.subsystem}"
    if covers_signal(rule.restart_on_signals, failure.signal, kind):
        return True, f"policy {policy} restarts after the failure {failure.signal}"
    return _by_default(policy, rule, kind)


def _by_default(policy: str, rule: Implementation, error_type: str | None) -> tuple[bool, str]:
    wanted = rule.default_action == "restart"
    does = "restarts by default" if wanted else "does not restart by default"
    if error_type is None or error_type == "unknown":
        return wanted, f"nothing is known about the error ({error_type or 'no error type'}): policy {policy} {does}"
    return wanted, f"policy {policy} does not list the error type {error_type}: it {does}"
