"""Finds jobs that the remediator holds without an open incident, and calls that took effect after its end.

Such a job is released and watched, by an incident of its own, or a person is paged. A hold of a person is left. A job
that was submitted for an incident, and is not the one that it keeps, is cancelled while it is held.
"""

from __future__ import annotations

import enum
import logging
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from trainwarden.identity import AttemptKey
from trainwarden_remediator.act.exclusions import Exclusions
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    Driver,
    JobState,
    RestartTarget,
    ScheduledJob,
    Shape,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.recoverability import Outlook
from trainwarden_remediator.incidents.incident import OPEN_STATES, Action, Incident, State
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.calls import Call
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

ALERT = "held job"
_INTERVAL_SECONDS = 60.0
# A call that is older is not taken for the cause of a hold. Much longer than a call may take: the wall clock may have
# jumped since, or no remediator have run.
_LATEST_SECONDS = 24 * 3600.0
_HELD = "held without an incident"
_OPEN, _NONE = "open", "none"


class Step(enum.Enum):
    """What is to be done about a held job."""

    LEAVE = "leave"
    RELEASE = "release"
    AWAIT = "await"  # release it, unless that is done by whoever holds it
    PAGE = "page"
    DISCARD = "discard"
    ASK = "ask"  # page, unless that is done by whoever has submitted it


@dataclass(frozen=True)
class Finding:
    """What is to be done about a held job, and why."""

    step: Step
    reason: str = ""


def judge(
    job: ScheduledJob,
    incidents: Sequence[Incident],
    calls: Sequence[Call],
    now: float,
    doubt_window: float,
    relieved: Collection[str] = (),
) -> Finding:
    """Judge by what is on record about a job, without a clock or a scheduler.

    Args:
        job: as the scheduler shows it.
        incidents: all about this job.
        calls: all about this job.
        now: Unix seconds.
        doubt_window: seconds for which a call without a clear answer may still take effect.
        relieved: ids of incidents whose pages have ended without a person.
    """
    if not _may_be_ours(job) or any(each.state in OPEN_STATES for each in incidents):
        return Finding(Step.LEAVE)
    told = [each for each in incidents if _is_of(each, job.generation - 1) and _told(each)]
    if any(each.id not in relieved for each in told):
        return Finding(Step.LEAVE)  # a person knows, or this was tried
    ended = [each for each in calls if each.verb == "prepare" and each.outcome != CallOutcome.REFUSED.value]
    given = [each for each in calls if each.verb == "commit" and each.outcome != CallOutcome.REFUSED.value]
    if any(each.generation == job.generation - 1 for each in given):
        return Finding(
            Step.PAGE,
            f"job {job.job_id} is held although the remediator has released it: the scheduler may have forgotten a "
            "start that it gave. Make sure that no process of the job lives, and release it "
            f"(scontrol release {job.job_id})",
        )
    if told:
        return Finding(Step.LEAVE)  # its page has ended, and what came after it was not the remediator's doing
    if any(each.generation == job.generation - 1 for each in ended):
        return Finding(Step.RELEASE, "a call of the remediator has ended it after the end of its incident")
    unclear = [each for each in ended if each.outcome != CallOutcome.ACCEPTED.value]
    if any(0 <= now - each.started <= doubt_window for each in unclear):
        return Finding(Step.RELEASE, "a call without an answer has ended a newer start of the job")
    if unclear and any(each.id == unclear[-1].incident_id and each.state is State.ESCALATED for each in incidents):
        return Finding(Step.LEAVE)  # a person knows of the call and the hold
    if unclear and unclear[-1].generation < job.generation - 1 and now - unclear[-1].started < _LATEST_SECONDS:
        minutes = (now - unclear[-1].started) / 60
        return Finding(
            Step.PAGE,
            f"job {job.job_id} is held after a requeue: by a person, or by a call of the remediator that got no answer "
            f"{minutes:.0f} minutes ago. Release it (scontrol release {job.job_id}) unless it is to be held",
        )
    if job.hold_of is not None and not any(each.id == job.hold_of for each in incidents):
        return Finding(Step.AWAIT, "its comment names an incident that is not on record: the database is another one")
    return Finding(Step.LEAVE)


def judge_submitted(job: ScheduledJob, incident: Incident | None, calls: Sequence[Call]) -> Finding:
    """Judge a held job that was submitted for an incident, by what is on record.

    Args:
        job: as the scheduler shows it.
        incident: that it names; None where it is not on record.
        calls: of that incident.
    """
    if job.state is not JobState.HELD or job.refusal is not None:
        return Finding(Step.LEAVE)
    if incident is None:
        reason = f"job {job.job_id} is held, and names an incident that is not on record: the database is another one"
        return Finding(Step.ASK, f"{reason}. Release it (scontrol release {job.job_id}), or cancel it")
    if incident.successor == job.job_id:
        released = any(each.verb == "commit" and each.outcome != CallOutcome.REFUSED.value for each in calls)
        if incident.state in OPEN_STATES or incident.state is State.ESCALATED or released:
            return Finding(Step.LEAVE)  # about to be released, a person knows, or a person holds it
        return Finding(Step.DISCARD, f"the incident that has submitted it is {incident.state.value}")
    if incident.successor is None and (incident.state in OPEN_STATES or incident.state is State.ESCALATED):
        return Finding(Step.LEAVE)
    kept = f"job {incident.successor} was kept" if incident.successor else f"its incident is {incident.state.value}"
    return Finding(Step.DISCARD, f"a call without an answer has submitted it, and {kept}")


def is_held_by_us(job: ScheduledJob, calls: Sequence[Call]) -> bool:
    """Return whether a call of the remediator holds a job, by the calls about it on record, else by its comment."""
    prepared = [each for each in calls if each.verb == "prepare" and each.generation == job.generation - 1]
    if not prepared:
        return _may_be_ours(job) and job.hold_of is not None
    # The comment is set beside the call, and stays where the call was refused.
    return _may_be_ours(job) and any(each.outcome != CallOutcome.REFUSED.value for each in prepared)


def _may_be_ours(job: ScheduledJob) -> bool:
    return job.state is JobState.HELD and job.held_by_requeue and job.refusal is None


def _is_of(incident: Incident, generation: int) -> bool:
    return incident.attempt_key is not None and incident.generation == generation


def _subject(driver: Driver, job: ScheduledJob) -> str:
    return f"{driver.name}:{job.job_id}:{job.generation}"


def _told(incident: Incident) -> bool:
    return incident.alert == ALERT or incident.state is State.ESCALATED


class Sweeper:
    """Judges all jobs that are held: at the start, and every minute."""

    def __init__(
        self,
        world: World,
        store: Store,
        timers: Timers,
        *,
        doubt_window: float,
        cluster: str = "",
        outlook: Outlook | None = None,
    ) -> None:
        self._world = world
        self._store = store
        self._timers = timers
        self._doubt_window = doubt_window
        self._cluster = cluster
        self._outlook = outlook
        self._exclusions = Exclusions(store, world.clock)
        self._swept: float | None = None
        self._held: dict[str, Counter[str]] = {}

    def sweep(self) -> None:
        """Judge all held jobs, if it is time to; a scheduler that gives no answer is judged the next time."""
        now = self._world.clock.monotonic()
        if self._swept is not None and now - self._swept < _INTERVAL_SECONDS:
            return
        self._swept = now
        for driver in self._world.drivers.values():
            jobs = driver.jobs()
            if self._outlook is not None:
                self._outlook.look(driver, jobs)
            if isinstance(jobs, Unknown) or driver.shape is Shape.ONE_CALL:
                # A driver that ends and starts by one call holds nothing.
                self._held = {name: count for name, count in self._held.items() if name != driver.name}
                continue
            self._exclusions.end(driver, jobs)
            self._held = {**self._held, driver.name: self._count(driver, jobs)}
            suspects = [job for job in jobs if self._judge(driver, job).step is not Step.LEAVE]
            self._forget_all_but(driver, suspects)
            # A person may have done something about it since it was read.
            fresh = driver.snapshot([job.job_id for job in suspects]) if suspects else driver
            for suspect in suspects:
                job = fresh.job(suspect.job_id)
                if isinstance(job, ScheduledJob):
                    self._act(driver, job)

    def families(self) -> Iterator[Metric]:
        """Return how many jobs the remediator held at the last sweep, for any thread; nothing of an unknown queue."""
        family = GaugeMetricFamily(
            "trainwarden_remediator_held_jobs",
            "Jobs that the remediator holds, by whether an incident about them is open.",
            labels=["scheduler", "incident"],
        )
        for scheduler, count in self._held.items():
            for incident in (_OPEN, _NONE):
                family.add_metric([scheduler, incident], count[incident])
        yield family

    def _count(self, driver: Driver, jobs: Sequence[ScheduledJob]) -> Counter[str]:
        count: Counter[str] = Counter()
        for job in jobs:
            if job.submission is not None and job.state is JobState.HELD:
                incident = self._incident(job)
                count[_OPEN if incident is not None and incident.state in OPEN_STATES else _NONE] += 1
            elif _may_be_ours(job) and is_held_by_us(job, self._store.calls.of_job(driver.name, job.job_id)):
                incidents = self._store.of_job(driver.name, job.job_id)
                count[_OPEN if any(each.state in OPEN_STATES for each in incidents) else _NONE] += 1
        return count

    def _judge(self, driver: Driver, job: ScheduledJob) -> Finding:
        if job.state is not JobState.HELD:
            return Finding(Step.LEAVE)
        if job.submission is not None and not job.held_by_requeue:
            incident = self._incident(job)
            made = self._store.calls.of_job(driver.name, incident.job_id or "") if incident else []
            return judge_submitted(job, incident, [each for each in made if each.incident_id == job.submission])
        calls = self._store.calls.of_job(driver.name, job.job_id)
        incidents = self._store.of_job(driver.name, job.job_id)
        silent = {each.id for each in incidents if each.state is State.ESCALATED and not each.paging}
        relieved = silent - self._store.acknowledged(silent) if silent else silent
        return judge(job, incidents, calls, self._world.clock.now(), self._doubt_window, relieved)

    def _act(self, driver: Driver, job: ScheduledJob) -> None:
        finding = self._judge(driver, job)
        subject = _subject(driver, job)
        if finding.step in (Step.AWAIT, Step.ASK):
            # Another remediator, with a database of its own, may be about to release it.
            if self._timers.wait(subject, _HELD) < self._doubt_window or self._is_told(driver, job, finding):
                return
            finding = Finding(Step.RELEASE if finding.step is Step.AWAIT else Step.PAGE, finding.reason)
        self._timers.forget(subject, _HELD)
        if finding.step is Step.DISCARD:
            self._discard(driver, job, finding)
        elif finding.step is not Step.LEAVE:
            self._record(driver, job, finding)

    def _forget_all_but(self, driver: Driver, suspects: Sequence[ScheduledJob]) -> None:
        """End the timers of jobs that somebody has released, or whose incident came to be in a process that died."""
        held = {_subject(driver, job) for job in suspects}
        for subject in self._timers.subjects(_HELD):
            if subject.startswith(f"{driver.name}:") and subject not in held:
                self._timers.forget(subject, _HELD)

    def _is_told(self, driver: Driver, job: ScheduledJob, finding: Finding) -> bool:
        """Return whether a person was paged about a submitted job."""
        return finding.step is Step.ASK and any(map(_told, self._store.of_job(driver.name, job.job_id)))

    def _incident(self, job: ScheduledJob) -> Incident | None:
        """Return the incident that has submitted a job; None where it is not on record."""
        try:
            return self._store.incident(job.submission or "")
        except KeyError:
            return None

    def _discard(self, driver: Driver, job: ScheduledJob, finding: Finding) -> None:
        """Cancel a job that was submitted, and must not start. What comes of it is seen by the next sweep."""
        incident = self._incident(job)
        if incident is None:
            return
        target = RestartTarget(
            incident.id,
            incident.run_id,
            incident.job_id or "",
            incident.generation,
            finding.reason,
            shape=Shape.RESUBMIT,
            successor=job.job_id,
        )
        log.warning("run %s job %s, incident %s is cancelled: %s", job.run_id, job.job_id, incident.id, finding.reason)
        now = self._world.clock.now()
        call = Call(incident.id, driver.name, incident.job_id or "", incident.generation, "discard", now)
        number = self._store.calls.begin(call)
        self._store.calls.end(number, driver.discard(target).outcome.value)

    def _record(self, driver: Driver, job: ScheduledJob, finding: Finding) -> None:
        """Write down the incident; where the job is to be released, the state machine does it, as after `requeuehold`.

        The restart counts in the budget of the run, unless one of this attempt is on record already.
        """
        now, generation = self._world.clock.now(), max(0, job.generation - 1)
        key = str(AttemptKey(driver.name, job.job_id, generation))
        earlier = [each for each in self._store.of_job(driver.name, job.job_id) if each.attempt_key == key]
        release = finding.step is Step.RELEASE
        restart = release and not any(each.action is Action.RESTART for each in earlier)
        run_id = job.run_id or ""
        run = self._world.run(run_id)
        seen = run if isinstance(run, ReportedRun) and run.attempt_key == key else None
        before = earlier[-1] if earlier else None
        incident = Incident(
            id=uuid.uuid4().hex,
            run_id=run_id,
            attempt=seen.attempt if seen else before.attempt if before else None,
            attempt_key=key,
            job_id=job.job_id,
            scheduler=driver.name,
            alert=ALERT,
            failure_mode=before.failure_mode if before else "crash",
            error_type=None,
            state=State.COMMITTED if release else State.ESCALATED,
            action=Action.RESTART if restart else Action.RELEASE if release else Action.ESCALATE,
            reason=f"job {job.job_id} is held: {finding.reason}" if release else finding.reason,
            policy=before.policy if before else "",
            budget_used=None,
            budget_limit=None,
            step_before=seen.high_water if seen else before.step_before if before else None,
            created=now,
            updated=now,
            committed=now if release else None,
            paging=not release,
            cluster=before.cluster if before else self._cluster,
        )
        self._store.add(incident)
        log.warning("run %s job %s, incident %s: %s", run_id, job.job_id, incident.id, incident.reason)
