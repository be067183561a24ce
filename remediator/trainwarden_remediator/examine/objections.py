"""The checks before a decision about an attempt, and again right before the call that ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwarden_remediator.canary_job.canary_job import RUN_ID as CANARY_JOB
from trainwarden_remediator.decide.attempt import label_problem, scheduler_objection, stale
from trainwarden_remediator.decide.facts import Fact, contradiction, facts_of
from trainwarden_remediator.decide.verdict import Barred, Contradiction, Held, NotNow, Refuse, Wait
from trainwarden_remediator.drivers.driver import JobState, Reading, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.witness import cpu_use
from trainwarden_remediator.incidents.incident import Alert, Incident, parse_key
from trainwarden_remediator.observe.cpu_time import CpuUse
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store

_AT_WORK = frozenset((JobState.RUNNING, JobState.OTHER))
# How long a save that has begun is waited for.
_SAVE_SECONDS = 600.0
# Of a run, with the policy that its record requests, its failure mode, and Unix time.
Withheld = Callable[[str, str | None, str, float], str | None]
INACTIVE = "Alertmanager does not list it as active: resolved, silenced or inhibited"


@dataclass(frozen=True)
class Objections:
    """The checks before a decision, repeated right before the first call."""

    world: World
    jobs: Sequence[ScheduledJob] | Unknown | None = None

    def against(self, alert: Alert) -> tuple[ReportedRun | None, Wait | Refuse | None]:
        """Return the run as it is now, where known, and the objection to touching it, if any."""
        if reason := label_problem(alert):
            return None, Refuse(reason)
        assert alert.run_id is not None  # noqa: S101  # label_problem() refuses it
        run = self._confirmed(self.world.run(alert.run_id))
        if verdict := stale(alert, run):
            return (run if isinstance(run, ReportedRun) else None), verdict
        assert isinstance(run, ReportedRun)  # noqa: S101  # stale() refuses anything else
        return run, self._of_run(run)

    def _of_run(self, run: ReportedRun) -> Wait | Refuse | None:
        key = parse_key(run.attempt_key)
        assert key is not None  # noqa: S101  # stale() refuses it
        complete = self.world.records.complete(run)
        if isinstance(complete, Unknown):
            return Wait(complete.reason)
        if complete:
            return Refuse("by its record the attempt is complete")
        rival = self.world.records.rival(run.run_id, self.world.clock.now())
        if isinstance(rival, Unknown):
            return Wait(rival.reason)
        if rival:
            return Contradiction(
                f"two attempts of the run live: {rival}, beside attempt {run.attempt}. Nothing is ended before a "
                "person has ended one of them"
            )
        driver = self.world.drivers.get(key.scheduler)
        if driver is None:
            return Barred(f"no driver for scheduler {key.scheduler!r}")
        job = driver.job(key.job_id)
        objection = scheduler_objection(run.run_id, key.generation, job, run.failure) or self._of_owner(run, job)
        objection = objection or self._of_canary(run, job)
        if objection is not None or not isinstance(job, ScheduledJob):
            return objection
        return successor(job, driver.jobs() if self.jobs is None else self.jobs)

    def _confirmed(self, run: Evidence) -> Evidence:
        """Return the record whose attempt the scheduler confirms, where several claim the run; else the newest."""
        if not isinstance(run, ReportedRun) or not run.others:
            return run
        return next((each for each in (run, *run.others) if self._is_confirmed(each)), run)

    def _is_confirmed(self, run: ReportedRun) -> bool:
        key = parse_key(run.attempt_key)
        driver = self.world.drivers.get(key.scheduler) if key else None
        job = driver.job(key.job_id) if key and driver else None
        return (
            isinstance(job, ScheduledJob)
            and key is not None
            and (job.run_id, job.generation) == (run.run_id, key.generation)
        )

    def _of_owner(self, run: ReportedRun, job: Reading) -> Wait | Refuse | None:
        """Refuse where another user than the job's writes the record; root may write for every user."""
        owner = self.world.records.owner(run.run_id)
        if isinstance(owner, Unknown):
            return Wait(owner.reason)
        user = job.user if isinstance(job, ScheduledJob) else None
        if user is None or owner in (None, 0, user):
            return None
        return Barred(f"the record is written by uid {owner}, and the job belongs to uid {user}")

    def _of_canary(self, run: ReportedRun, job: Reading) -> Refuse | None:
        """Refuse what only has the name of the canary: no limit of other runs holds for that one."""
        user = job.user if isinstance(job, ScheduledJob) else None
        if run.run_id != CANARY_JOB or user is None or user in self.world.canary_users:
            return None
        return Barred(
            f"the run id {CANARY_JOB} is reserved for the canary of this cluster, and the job belongs to uid {user}; "
            "see --canary and --canary-user"
        )


def successor(job: ScheduledJob, jobs: Sequence[ScheduledJob] | Unknown) -> Wait | Refuse | None:
    """Refuse where another job works for the run, or will although this one waits: two would write its checkpoints.

    Chains of jobs go on by themselves: `afterany`, an array with `%1`. One that waits for this job by a dependency, or
    as `singleton`, goes on waiting while this one is requeued. Where its user is known, jobs of others do not count.
    """
    if isinstance(jobs, Unknown):
        return Wait(jobs.reason)
    ending = None
    for other in jobs:
        if other.run_id != job.run_id or other.job_id == job.job_id or job.user not in (None, other.user):
            continue
        if other.state is JobState.ENDING:  # it may be over then, or requeued
            ending = Wait(f"job {other.job_id} is marked with the run too and is {other.scheduler_state}")
        if other.state is JobState.WAITING and other.waits_for_jobs and _ends(job) and not other.never_starts:
            return Barred(
                f"job {other.job_id} is marked with the run too and waits for others to end: job {job.job_id} cannot "
                "be requeued, and once it is ended that one would go on beside the job that replaces it"
            )
        if other.state in _AT_WORK or (other.state is JobState.WAITING and not other.waits_for_jobs):
            return Barred(
                f"job {other.job_id} is marked with the run too and is {other.scheduler_state}: it goes on with it"
            )
    return ending


def _ends(job: ScheduledJob) -> bool:
    """Return whether a restart ends the job, as others see it."""
    return job.shape is not None and job.shape.gives_new_job


class Recheck:
    """Checks again right before an attempt is ended, for the run may have recovered since the decision.

    Reads Alertmanager, Prometheus, the scheduler, and what people have switched. `jobs` are all marked jobs, where they
    are not to be read. `withheld` returns why the policy of a run forbids its restart now.

    Attributes:
        known: the facts about the attempt, by the readings of the last check; none where it did not get so far.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        withheld: Withheld,
        jobs: Sequence[ScheduledJob] | Unknown | None = None,
    ) -> None:
        self._world = world
        self._store = store
        self._withheld = withheld
        self._objections = Objections(world, jobs)
        self.known: tuple[Fact, ...] = ()

    def against(self, incident: Incident) -> Wait | Refuse | None:
        """Return why the attempt of the incident must not be ended now; None if nothing forbids it."""
        if (by := self._store.answers.vetoed(incident.id)) is not None:
            return Refuse(f"vetoed by {by}")
        if frozen := self._store.switches.frozen(incident.run_id):
            return NotNow(frozen)
        if verdict := self._of_run(incident):
            return verdict
        if incident.run_id == CANARY_JOB:  # a storm of others is when the acting path must be known to work
            return None
        storm = self._store.switches.storm(incident.cluster)
        return Held(storm.text) if storm else None

    def _of_run(self, incident: Incident) -> Wait | Refuse | None:
        firing = self._world.alerts.firing()
        if isinstance(firing, Unknown):
            return Wait(firing.reason)
        alert = _alert_of(incident, firing)
        if alert is None:
            return NotNow(INACTIVE)
        cpu = self._cpu_use(incident)  # before the job is read: the call follows that, and nothing else
        run, verdict = self._objections.against(alert)
        if verdict is not None or run is None:
            return verdict
        if run.attempt_key != incident.attempt_key:
            return Refuse(f"stale: the run is at {run.attempt_key}")
        self.known = facts_of(incident.failure_mode, run, self._reading(incident), self._world.clock.now(), cpu)
        return (
            _recovered(incident, run, ended=self._ended(incident))
            or self._of_policy(run, incident.failure_mode)
            or self._contradicted(incident, run, cpu)
            or self._new_suspects(incident)
            or self._saving(incident, run)
        )

    def _of_policy(self, run: ReportedRun, mode: str) -> NotNow | None:
        """Refuse where a mode, a maintenance or another policy forbids it that was not there at the decision."""
        reason = self._withheld(run.run_id, run.policy, mode, self._world.clock.now())
        return NotNow(reason) if reason else None

    def _new_suspects(self, incident: Incident) -> Wait | Refuse | None:
        """Refuse where a node has become suspect since the decision: the next one avoids it."""
        found = self._world.nodes.of_run(incident.run_id)
        if isinstance(found, Unknown):
            return Wait(found.reason)
        new = sorted(found.suspects.keys() - self._store.suspects_of(incident.id) - incident.excluded.keys())
        evidence = ", ".join(f"{node} ({found.suspects[node]})" for node in new)
        return NotNow(f"decided anew: there is evidence of {evidence}") if new else None

    def _cpu_use(self, incident: Incident) -> CpuUse | Unknown | None:
        run = self._world.run(incident.run_id) if incident.failure_mode in ("stall", "timeout") else None
        return cpu_use(self._world, incident.failure_mode, run) if isinstance(run, ReportedRun) else None

    def _contradicted(self, incident: Incident, run: ReportedRun, cpu: CpuUse | Unknown | None) -> NotNow | None:
        """Refuse where another source says by now that the attempt works; its alert waits then, and pages."""
        found = contradiction(incident.failure_mode, run, self._reading(incident), self._world.clock.now(), cpu)
        of_attempt = incident.run_id, incident.cluster, run.attempt_key, run.high_water
        if found is None or self._store.answers.approved_against_facts(*of_attempt):
            return None
        return NotNow(found.reason)

    def _saving(self, incident: Incident, run: ReportedRun) -> Wait | None:
        """Wait for a save that has just begun, not for one that hangs; after a crash none is finished."""
        if incident.failure_mode == "crash":
            return None
        seconds = self._world.records.saving(run.run_id, run.attempt_key, self._world.clock.now())
        if isinstance(seconds, Unknown):
            return Wait(seconds.reason)
        if seconds is None or seconds >= min(_SAVE_SECONDS, run.stall_budget or _SAVE_SECONDS):
            return None
        return Wait("it is saving a checkpoint")

    def _ended(self, incident: Incident) -> bool:
        """Return whether the scheduler has ended the job."""
        reading = self._reading(incident)
        return isinstance(reading, ScheduledJob) and reading.state is JobState.FAILED

    def _reading(self, incident: Incident) -> Reading | None:
        driver = self._world.drivers.get(incident.scheduler or "")
        return driver.job(incident.job_id or "") if driver else None


def _alert_of(incident: Incident, firing: Sequence[Alert]) -> Alert | None:
    """Return the alert of the decision; a stronger one that replaced it needs a decision of its own."""
    for alert in firing:
        about = (alert.run_id, alert.attempt, alert.label("alertname") or "", alert.mode or "unknown")
        same = about == (incident.run_id, incident.attempt, incident.alert, incident.failure_mode)
        if same and alert.is_of_cluster(incident.cluster):
            return alert
    return None


def _recovered(incident: Incident, run: ReportedRun, *, ended: bool) -> Refuse | None:
    """Refuse if the step has passed that of the decision. Where its job has ended, a crash is a crash nevertheless."""
    crash = incident.failure_mode == "crash"
    if (crash and ended) or run.high_water is None:
        return None
    if incident.step_before is None:
        return NotNow(f"the run has made a step since: it is at {run.high_water:g}")
    if not crash and run.stepped is not None and run.stepped > incident.created:
        # Below the highest step of an earlier attempt, too, as after a restart.
        return NotNow(f"the run has made a step since: {'' if run.step is None else f'it is at {run.step:g}'}")
    if run.high_water <= incident.step_before:
        return None
    reason = f"the run goes on by itself: step {run.high_water:g} after {incident.step_before:g}"
    return NotNow(f"{reason}, although it is recorded as failed") if crash else Refuse(reason)
