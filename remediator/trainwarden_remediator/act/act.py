"""One call to a scheduler, right after everything that it rests on was read again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainwarden_remediator.decide.facts import Fact
from trainwarden_remediator.decide.verdict import Refuse, Wait
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    CallResult,
    Driver,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    Shape,
    restart_progress,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import Recheck, Withheld
from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.calls import Call
from trainwarden_remediator.store.store import Store

log = logging.getLogger(__name__)

Jobs = Sequence[ScheduledJob] | Unknown
_NOTHING = CallResult(CallOutcome.UNCLEAR, "nothing was called")


@dataclass(frozen=True)
class Forgotten(Refuse):
    """The scheduler may have forgotten what it had done for the incident: a person has to look before more is done."""


@dataclass(frozen=True)
class Answer:
    """What came of a call.

    Attributes:
        withheld: why nothing was called; None where the call was made.
        result: of the call.
        after: how far the restart has come by a reading after a refused call, else unknown.
        late: it was to undo what a late call had done.
    """

    withheld: Wait | Refuse | None = None
    result: CallResult = _NOTHING
    after: RestartProgress = RestartProgress.UNKNOWN
    late: bool = False


class Actor:
    """Ends attempts and gives starts. For any thread: nothing is kept between two calls.

    `checkpoint_trust` returns, for the name of a policy, what a run that it restarts takes for a complete checkpoint.
    `withheld` returns why the policy of a run forbids a restart by now that it has decided.
    `crashpoint` is called around every call to a scheduler; tests make it exit there.
    `described` waits until what the scheduler has of an incident's job is kept, and returns whether that took so long
    that what was read meanwhile is old.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        checkpoint_trust: Callable[[str], str | None],
        crashpoint: Callable[[str], None] = lambda _name: None,
        withheld: Withheld = lambda _run_id, _requested, _mode, _now: None,
        described: Callable[[str], bool] = lambda _incident: False,
    ) -> None:
        self._world = world
        self._withheld = withheld
        self._store = store
        self._checkpoint_trust = checkpoint_trust
        self._crashpoint = crashpoint
        self._described = described

    def prepare(self, incident: Incident, target: RestartTarget, jobs: Jobs) -> Answer:
        """End the attempt and hold the next start, unless a fresh reading of any source speaks against it.

        `jobs` are all marked jobs as of the round: a list of them right before each call would be one of all jobs.
        """
        driver = self._fresh(incident, target)
        recheck = self._recheck(driver, jobs)
        objection = self._against_end(incident, target, driver, recheck)
        if objection is None and self._described(incident.id):
            driver = self._fresh(incident, target)
            recheck = self._recheck(driver, jobs)
            objection = self._against_end(incident, target, driver, recheck)
        if objection is not None:
            return Answer(objection)
        self._announce(incident)
        return self._call("prepare", driver.prepare, driver, target, recheck.known)

    def _against_end(
        self, incident: Incident, target: RestartTarget, driver: Driver, recheck: Recheck
    ) -> Wait | Refuse | None:
        """Return why the attempt must not be ended, by a fresh reading; None if nothing forbids it."""
        if objection := recheck.against(incident):
            return objection
        job = driver.job(target.job_id)
        seen = restart_progress(driver, target)
        if seen is not RestartProgress.UNTOUCHED:
            return Wait(seen.value)
        # A controller that is killed may begin a job once more under the same count.
        started = job.started if isinstance(job, ScheduledJob) else None
        if any(each.job_started not in (None, started) for each in self._made("prepare", driver, target)):
            return Forgotten(
                f"the scheduler was started again, and job {target.job_id} has begun once more under the restart count "
                f"{target.generation}, which the incident was about: this start is left alone. If it hangs, "
                f"{_end_by_hand(target)}"
            )
        return None

    def commit(self, incident: Incident, target: RestartTarget, jobs: Jobs, late: ScheduledJob | None = None) -> Answer:
        """Give the next start.

        Args:
            incident: whose start it is.
            target: the start that it replaces.
            jobs: as with `prepare`.
            late: the job as a late call has left it; it is released only if it still is like that.
        """
        driver = self._fresh(incident, target)
        recheck = self._recheck(driver, jobs)
        ends = decides_to_end(incident, target)
        # One call that ends the old start and gives the next needs the same checks as one that only ends.
        if ends and (objection := recheck.against(incident)):
            return Answer(objection)
        seen = restart_progress(driver, target)
        if driver.job(target.job_id) != late if late else seen is not RestartProgress.READY:
            return Answer(Wait(seen.value))
        boot = self._same_scheduler(driver, target)
        if not isinstance(boot, str):
            return Answer(boot)
        if ends:
            self._announce(incident)
        verb = "submit" if submits_held(target) else "commit"
        answer = self._call(verb, driver.commit, driver, target, recheck.known, boot)
        return replace(answer, late=late is not None)

    def _same_scheduler(self, driver: Driver, target: RestartTarget) -> str | Wait | Refuse:
        """Return the boot of the scheduler's controller; or why no start must be given.

        A controller that is killed forgets the last seconds: it may show a job as it was before a call that had taken
        effect. A start that it has given, and forgotten, must not be given again. Read after the job: both are of one
        controller then, if it is that of the earlier calls.
        """
        boot = driver.boot()
        if isinstance(boot, Unknown):
            return Wait(boot.reason)
        if any(each.boot != boot for each in self._made("commit", driver, target)):
            return Forgotten(
                f"the scheduler was started again ({boot}) after {_given(target)}: it may have forgotten a start that "
                "it gave. Nothing is started again: make sure that no process of the run lives, and "
                f"{_by_hand(target)}"
            )
        return boot

    def was_forgotten(self, driver: Driver, target: RestartTarget) -> bool:
        """Return whether the controller was started again since the job that a target lacks was submitted."""
        boot, made = driver.boot(), self._made("submit", driver, target)
        return isinstance(boot, str) and any(each.boot != boot for each in made[-1:])

    def has_released(self, driver: Driver, target: RestartTarget) -> bool:
        """Return whether the present controller has accepted a call to give the next start."""
        boot, made = driver.boot(), self._made("commit", driver, target)
        return any(each.outcome == CallOutcome.ACCEPTED.value and each.boot == boot for each in made)

    def _made(self, verb: str, driver: Driver, target: RestartTarget) -> list[Call]:
        """Return the earlier calls of an incident that may have taken effect."""
        calls = self._store.calls.of_job(driver.name, target.job_id)
        made = [each for each in calls if each.incident_id == target.incident and each.verb == verb]
        return [each for each in made if each.outcome != CallOutcome.REFUSED.value]

    def has_committed(self, incident: Incident) -> bool:
        """Return whether a call to give the next start was made that the scheduler has not refused."""
        calls = self._store.calls.of_job(incident.scheduler or "", incident.job_id or "")
        made = [each for each in calls if each.incident_id == incident.id and each.verb == "commit"]
        return any(each.outcome != CallOutcome.REFUSED.value for each in made)

    def _fresh(self, incident: Incident, target: RestartTarget) -> Driver:
        return self._world.drivers[incident.scheduler or ""].snapshot((target.job_id,))

    def _recheck(self, driver: Driver, jobs: Jobs) -> Recheck:
        world = replace(self._world, drivers={**self._world.drivers, driver.name: driver})
        return Recheck(world, self._store, self._withheld, jobs)

    def _announce(self, incident: Incident) -> None:
        problem = self._world.records.announce_restart(
            incident.run_id,
            incident.attempt_key or "",
            incident.reason,
            incident.id,
            self._checkpoint_trust(incident.policy),
        )
        if problem:
            log.warning("run %s: %s", incident.run_id, problem)

    def _call(
        self,
        name: str,
        call: Callable[[RestartTarget], CallResult],
        driver: Driver,
        target: RestartTarget,
        known: Sequence[Fact],
        boot: str = "",
    ) -> Answer:
        now, job = self._world.clock.now(), driver.job(target.job_id)
        started = job.started if isinstance(job, ScheduledJob) else None
        made = Call(
            target.incident,
            driver.name,
            target.job_id,
            target.generation,
            name,
            now,
            boot=boot,
            job_started=started,
        )
        number = self._store.calls.begin(made, known)
        self._crashpoint(f"{name}: before call")
        result = call(target)
        self._crashpoint(f"{name}: after call")
        self._store.calls.end(number, result.outcome.value)
        after = RestartProgress.UNKNOWN
        if result.outcome is CallOutcome.REFUSED:
            after = restart_progress(driver.snapshot((target.job_id,)), target)
        return Answer(None, result, after)


def submits_held(target: RestartTarget) -> bool:
    """Return whether `commit` only submits a job, and gives no start yet."""
    return target.shape is Shape.RESUBMIT and not target.successor


def decides_to_end(incident: Incident, target: RestartTarget) -> bool:
    """Return whether the first call about an attempt is `commit`: of one call, or of a job that has ended by itself."""
    if target.shape.gives_new_job:
        return not incident.calls and not target.successor
    return target.shape is Shape.ONE_CALL


def _given(target: RestartTarget) -> str:
    if target.shape is Shape.SUBMIT:
        return f"the next start of job {target.job_id} had been submitted, and does not show it"
    return f"job {target.successor or target.job_id} had been released, and shows it held"


def _end_by_hand(target: RestartTarget) -> str:
    if target.shape is Shape.REQUEUE:
        return f"end it (scontrol requeue {target.job_id})"
    return "end it, and submit it again"


def _by_hand(target: RestartTarget) -> str:
    if target.shape is Shape.SUBMIT:
        return "submit it again"
    job = target.successor or target.job_id
    return f"release it (scontrol release {job})"
