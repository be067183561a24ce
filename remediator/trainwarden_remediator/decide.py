"""The decision, without clock, network or database: may this attempt be touched at all, and should it be restarted?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwarden.record.store import UNKNOWN_END
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.evidence import ReportedRun
from trainwarden_remediator.incident import Action, Alert, parse_key
from trainwarden_remediator.policy import Implementation, Policy
from trainwarden_remediator.vocabulary import covers_error_type, covers_signal, covers_subsystem

# An alert that began this long before the attempt started cannot be about it, even if two clocks differ.
_SKEW_SECONDS = 60.0
_ENDS_FROM_OUTSIDE = frozenset((UNKNOWN_END, "time_limit", "preempted"))
_SCHEDULED_ENDS = frozenset(("TIMEOUT", "DEADLINE", "PREEMPTED"))
_STATE_OF_MODE = {"crash": "failed", "stall": "running", "timeout": "running"}


@dataclass(frozen=True)
class Wait:
    """Something is unknown: do nothing, and decide again later."""

    reason: str


@dataclass(frozen=True)
class Refuse:
    """The facts rule out any action on this attempt."""

    reason: str


@dataclass(frozen=True)
class StartedAgain(Refuse):
    """The scheduler has replaced this start already, for the remediator or for another client."""


@dataclass(frozen=True)
class AlertedFailure:
    """The failure, as a policy matches it."""

    mode: str
    error_type: str | None = None
    subsystem: str | None = None
    signal: str | None = None


@dataclass(frozen=True)
class History:
    """Restarts of the run so far, per failure mode."""

    used: Mapping[str, int]


@dataclass(frozen=True)
class Decision:
    """An action and its reason. `not_before` is Unix time; `limit` is None where the policy has no budget."""

    action: Action
    reason: str
    used: int
    limit: int | None
    not_before: float


def label_problem(alert: Alert) -> str | None:
    """Return why the alert's labels name no attempt; None if they do."""
    if alert.run_id is None:
        return f"run_id {alert.label('run_id')!r} is no run id"
    if alert.attempt is None:
        return f"attempt {alert.label('attempt')!r} is no number: the alert cannot be tied to an attempt"
    if alert.mode is None:
        return f"failure_mode {alert.label('failure_mode')!r} is none of crash, stall, timeout, success"
    return None


def stale(alert: Alert, run: ReportedRun | Unknown | None) -> Wait | Refuse | None:
    """Return why the alert is not about the run's current attempt; None if it is."""
    if isinstance(run, Unknown):
        return Wait(run.reason)
    if run is None:
        return Wait("Prometheus does not know the run")
    key = parse_key(run.attempt_key)
    if key is None:
        return Refuse(f"the run reports an unreadable attempt key {run.attempt_key!r}")
    assert alert.attempt is not None  # noqa: S101  # label_problem() has refused it
    if alert.attempt > run.attempt:
        return Wait(f"Prometheus has attempt {run.attempt}, the alert is about attempt {alert.attempt}")
    if alert.attempt < run.attempt:
        return Refuse(f"stale: about attempt {alert.attempt}, the run is at attempt {run.attempt}")
    for label, present in (("job_id", key.job_id), ("scheduler", key.scheduler)):
        named = alert.label(label)
        if named is not None and named != present:
            return Refuse(f"stale: about {label} {named}, the run is at {label} {present}")
    if alert.starts_at is not None and run.started is not None and alert.starts_at < run.started - _SKEW_SECONDS:
        return Refuse("stale: it began before the present attempt did")
    if run.state in ("succeeded", "cancelled"):
        return Refuse(f"the run has {run.state}" if run.state == "succeeded" else "the run was cancelled")
    return _contradiction(alert, run)


def _contradiction(alert: Alert, run: ReportedRun) -> Wait | Refuse | None:
    """Refuse an alert that is older than what the run has reported since."""
    if run.state is None:
        return Wait("Prometheus does not say whether the run is running or has failed")
    expected = _STATE_OF_MODE.get(alert.mode or "")
    if expected is None or run.state == expected:
        return None
    return Refuse(f"the alert reports a {alert.mode}, but by its record the run is {run.state}, not {expected}")


def scheduler_objection(
    run_id: str, generation: int, reading: Reading, failure: str | None = None
) -> Wait | Refuse | None:
    """Return the scheduler's objection to ending this start of the job.

    Args:
        run_id: the run that the job works for.
        generation: the start that the run reports.
        reading: of the job.
        failure: that the run reports. Where it is only that the ranks were ended from outside, the scheduler may have
            done it: a time limit and a preemption are no failure.
    """
    if isinstance(reading, Unknown):
        return Wait(reading.reason)
    if isinstance(reading, Absent):
        return Refuse("the scheduler does not know the job any more")
    if reading.run_id != run_id:
        return Refuse(f"job {reading.job_id} is not marked as belonging to the run")
    if reading.generation > generation:
        return StartedAgain(f"job {reading.job_id} has been started again already, and not by the remediator")
    if reading.generation < generation:
        return Wait(f"the scheduler is at start {reading.generation} of the job, the run at {generation}")
    if failure in _ENDS_FROM_OUTSIDE and (by := _SCHEDULED_ENDS.intersection(reading.scheduler_state.split("+"))):
        return Refuse(f"the scheduler ended job {reading.job_id} itself: {min(by)}")
    return _over_or_busy(reading) or (Refuse(reading.refusal) if reading.refusal else None)


def _over_or_busy(job: ScheduledJob) -> Wait | Refuse | None:
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        return Refuse(f"the scheduler says that job {job.job_id} is {job.scheduler_state}")
    if job.state not in (JobState.RUNNING, JobState.FAILED):
        return Wait(f"the scheduler says that job {job.job_id} is {job.scheduler_state}")
    return None


def decide(failure: AlertedFailure, history: History, policy: Policy, now: float) -> Decision:
    """Decide by budget, excluded types, included types and default, in this order; N retries mean N."""
    rule = policy.rules.get(failure.mode)
    used = history.used.get(failure.mode, 0)
    if rule is None or rule.class_name == "NoRestartPolicy":
        return Decision(Action.NONE, f"policy {policy.name} never restarts after a {failure.mode}", used, None, now)
    if used >= rule.max_retries:
        reason = f"restart budget used up: {used} of {rule.max_retries} after a {failure.mode}"
        return Decision(Action.ESCALATE, reason, used, rule.max_retries, now)
    wanted, reason = _wanted(policy.name, rule, failure)
    if not wanted:
        return Decision(Action.NONE, reason, used, rule.max_retries, now)
    delay = rule.restart_delay_seconds.delay(used) if rule.restart_delay_seconds else 0.0
    return Decision(Action.RESTART, reason, used, rule.max_retries, now + delay)


def _wanted(policy: str, rule: Implementation, failure: AlertedFailure) -> tuple[bool, str]:
    kind = failure.error_type
    if rule.class_name == "AlwaysRestartPolicy":
        return True, f"policy {policy} restarts after every {failure.mode}"
    if covers_error_type(rule.exclude_error_types, kind):
        return False, f"the error type {kind} is excluded by policy {policy}: a restart would not help"
    if covers_error_type(rule.restart_on_error_types, kind):
        return True, f"policy {policy} restarts after errors of the type {kind}"
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
