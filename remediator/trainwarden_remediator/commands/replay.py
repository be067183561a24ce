"""What a policy would have done: with the failures that a database has on record, or with that of a log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from trainwarden.record.clock import to_iso
from trainwarden.scan.command import judge_log
from trainwarden_remediator.database.schema import alerts, incidents, scores
from trainwarden_remediator.decide.decide import AlertedFailure, Circumstances, Decision, Restart, StopAndPage, decide
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.incidents.history import History, PastRestart, history_of
from trainwarden_remediator.incidents.incident import Action, Incident, clean
from trainwarden_remediator.incidents.incident_rows import select_incidents, selection
from trainwarden_remediator.incidents.price import Loss
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import FAILURE_MODES


@dataclass(frozen=True)
class Replayed:
    """One failure: what was decided then, and what the policy would decide; `was` is None of a log."""

    when: float | None
    run_id: str
    mode: str
    error_type: str | None
    was: str | None
    now: str
    reason: str

    def as_text(self) -> str:
        """Return it as two lines."""
        when = "" if self.when is None else f"{to_iso(self.when)} "
        of_kind = f" by {self.error_type}" if self.error_type else ""
        same = "" if self.was is None else " (as then)" if self.was == self.now else f" (then: {self.was})"
        return clean(f"{when}{self.run_id}: a {self.mode}{of_kind}", 300) + f"\n  {self.now}{same}: {self.reason}\n"

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return asdict(self)


def replay_database(connection: sa.Connection, policy: Policy, run_id: str | None = None) -> Iterator[Replayed]:
    """Decide again about each failed attempt on record that came as far as a policy, oldest first.

    Budgets count the restarts that this policy would have made of the same run, not those that were made. What was not
    stored is left out: the fleet's budget, freezes, suspect nodes, and the jitter.
    """
    past: dict[tuple[str, str], list[PastRestart]] = defaultdict(list)
    seen: set[tuple[str, str, str | None]] = set()
    for incident in _decided(connection, run_id):
        about = (incident.cluster, incident.run_id, incident.attempt_key)
        if about in seen:
            continue
        seen.add(about)
        of_run = past[incident.cluster, incident.run_id]
        failure = _failure(connection, incident)
        reached, saved = incident.step_before, incident.checkpoint_step
        history = history_of(of_run, failure.mode, failure.error_type, reached, saved)
        loss = _loss(incident)
        decision = decide(failure, history, policy, incident.created, Circumstances(loss=loss))
        if isinstance(decision, Restart):
            of_run.append(PastRestart(failure.mode, failure.error_type, incident.created, reached, saved))
        yield Replayed(
            incident.created,
            incident.run_id,
            failure.mode,
            failure.error_type,
            incident.action.value,
            _name(decision),
            decision.reason,
        )


def replay_log(file: str, policy: Policy, mode: str = "crash") -> Replayed | None:
    """Decide about the first failure of a run, as its log shows it; None where nothing failed. Raises ConfigError."""
    finding = judge_log(file)
    problem = next((log.error for log in finding.logs if log.error), None)
    if problem:
        raise ConfigError([f"--log: {clean(file)}: {clean(problem)}"])
    verdict = finding.verdict
    if verdict is None:
        return None
    failure = AlertedFailure(mode, verdict.error_type, verdict.subsystem, verdict.failure or verdict.signal)
    decision = decide(failure, History({}), policy, 0.0)
    return Replayed(None, clean(file), mode, verdict.error_type, None, _name(decision), decision.reason)


def _decided(connection: sa.Connection, run_id: str | None) -> list[Incident]:
    """Return the incidents that a policy has decided: others were refused by facts, whatever the policy."""
    by_policy = (
        (incidents.c.action == Action.RESTART.value)
        | incidents.c.budget_limit.is_not(None)
        | incidents.c.id.in_(sa.select(scores.c.incident_id))
    )
    where: list[sa.ColumnElement[bool]] = [
        by_policy,
        incidents.c.attempt_key.is_not(None),
        incidents.c.failure_mode.in_(FAILURE_MODES),
    ]
    if run_id is not None:
        where.append(incidents.c.run_id == run_id)
    return select_incidents(connection, selection(*where))


def _failure(connection: sa.Connection, incident: Incident) -> AlertedFailure:
    """Return the failure of an incident; of one by an older remediator, with what its alert still has of it."""
    subsystem = incident.subsystem
    if subsystem is None:
        query = sa.select(alerts.c.labels).where(alerts.c.incident_id == incident.id)
        labels = connection.execute(query.limit(1)).scalar_one_or_none()
        subsystem = (json.loads(labels) if labels else {}).get("subsystem") or None
    return AlertedFailure(incident.failure_mode, incident.error_type, subsystem, incident.signal)


def _loss(incident: Incident) -> Loss:
    """Return what a restart would have lost; of a job that the scheduler had ended 0 GPU hours by 0 GPUs are stored."""
    hours, gpus = incident.lost_gpu_hours, incident.held_gpus
    ended = hours == 0 and gpus == 0
    return Loss(incident.step_before, incident.checkpoint_step, None if ended else hours, gpus, ended=ended)


def _name(decision: Decision) -> str:
    if isinstance(decision, Restart):
        return "restart" if decision.approval is None else "restart after an approval"
    if isinstance(decision, Wait):
        return "wait"
    return "escalate" if isinstance(decision, StopAndPage) else "none"
