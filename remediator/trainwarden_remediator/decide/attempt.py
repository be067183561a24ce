"""Whether an attempt may be touched at all, without clock, network or database."""

from __future__ import annotations

from trainwarden.record.store import UNKNOWN_END
from trainwarden_remediator.decide.verdict import Barred, Lost, Refuse, StartedAgain, Wait
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, parse_key
from trainwarden_remediator.observe.evidence import ReportedRun

# An alert that began this long before the attempt started cannot be about it, even if two clocks differ.
_SKEW_SECONDS = 60.0
_ENDS_FROM_OUTSIDE = frozenset((UNKNOWN_END, "time_limit", "preempted"))
# Ends that the scheduler has made for others' sake or for a limit, with what that means, the plainest first.
_SCHEDULED_ENDS = {
    "PREEMPTED": "other jobs took its place, and it is not requeued",
    "REVOKED": "it runs in another cluster of its federation",
    "DEADLINE": "its --deadline is reached, after which it cannot start again",
    "TIMEOUT": "its time limit is used up",
}
_FAILED_ENDS = frozenset(("FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL"))
_STATE_OF_MODE = {"crash": "failed", "stall": "running", "timeout": "running"}


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
        return Wait("Prometheus has no series of the run")
    key = parse_key(run.attempt_key)
    if key is None:
        return Refuse(f"the run reports an unreadable attempt key {run.attempt_key!r}")
    if run.cluster and not alert.is_of_cluster(run.cluster):
        return Refuse(f"stale: about cluster {alert.cluster}, the run is of cluster {run.cluster}")
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


def _contradiction(alert: Alert, run: ReportedRun) -> Wait | None:
    """Wait where the record does not show what the alert reports: one of both is old.

    The Prometheus that is asked may be the replica of the one that sent the alert, and behind it by a scrape. An alert
    that is the older one ends by itself.
    """
    if run.state is None:
        return Wait("Prometheus shows no state of the run, neither running nor failed")
    # What a user's signal states of the log is about a run that its record has as running.
    stated = alert.mode in run.stated and bool(alert.label("signal"))
    expected = "running" if stated else _STATE_OF_MODE.get(alert.mode or "")
    if expected is None or run.state == expected:
        return None
    return Wait(f"the alert reports a {alert.mode}, but by its record the run is {run.state}, not {expected}")


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
        return _gone(reading, failure)
    if reading.run_id != run_id:
        return Barred(f"job {reading.job_id} is not marked as belonging to the run")
    if reading.generation > generation:
        held = ", and is held: it starts when it is released" if reading.state is JobState.HELD else ""
        done = "requeued" if held else "started again"
        return StartedAgain(f"job {reading.job_id} has been {done} already, and not by the remediator{held}")
    if reading.generation < generation:
        return Wait(f"the scheduler is at start {reading.generation} of the job, the run at {generation}")
    by = next((each for each in _SCHEDULED_ENDS if each in reading.scheduler_state.split("+")), None)
    if by is not None and (failure in _ENDS_FROM_OUTSIDE or reading.state is JobState.WITHDRAWN):
        return Barred(f"the scheduler ended job {reading.job_id} itself: {by}, {_SCHEDULED_ENDS[by]}")
    return _over_or_busy(reading) or (Barred(reading.refusal) if reading.refusal else None)


def _gone(reading: Absent, failure: str | None) -> Refuse:
    if reading.lost:
        return Lost(reading.lost)
    if not reading.ended and (failure is None or failure in _ENDS_FROM_OUTSIDE):
        return Barred("the scheduler no longer lists the job")
    if not reading.ended:
        # Without accounting the run's own word is all there is: it takes a page, and nothing more.
        return Lost(
            f"by its record the run has failed ({failure}), the scheduler no longer lists its job, and no accounting "
            "shows how that ended: it cannot be requeued, only submitted again"
        )
    by_scheduler = failure in _ENDS_FROM_OUTSIDE and reading.ended in _SCHEDULED_ENDS
    if not by_scheduler and (why := lost(reading)) is not None:
        return Lost(why)
    means = f", {_SCHEDULED_ENDS[reading.ended]}" if reading.ended in _SCHEDULED_ENDS else ""
    return Barred(f"the scheduler no longer lists the job; by its accounting it is {reading.ended}{means}")


def lost(reading: Absent) -> str | None:
    """Return why only a person can bring a job back that its scheduler does not list; None where nothing shows that."""
    if reading.lost or reading.ended not in _FAILED_ENDS:
        return reading.lost or None
    return (
        f"by the scheduler's accounting the job is {reading.ended}, and its record is gone (MinJobAge): "
        "it cannot be requeued, only submitted again"
    )


def _over_or_busy(job: ScheduledJob) -> Wait | Refuse | None:
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        return Refuse(f"the scheduler reports job {job.job_id} as {job.scheduler_state}")
    if job.state is JobState.WITHDRAWN:
        return Barred(f"the scheduler ended job {job.job_id} itself: {job.scheduler_state}")
    if job.state is JobState.WAITING:
        return Refuse(f"job {job.job_id} waits in the queue ({job.scheduler_state}): the scheduler starts it by itself")
    if job.state is JobState.HELD:
        return Refuse(f"job {job.job_id} is held: it starts when it is released")
    if job.state not in (JobState.RUNNING, JobState.FAILED):
        return Wait(f"the scheduler reports job {job.job_id} as {job.scheduler_state}")
    return None
