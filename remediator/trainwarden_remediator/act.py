"""One call to a scheduler, right after everything that it rests on was read again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainwarden_remediator.decide import Refuse, Wait
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    CallResult,
    Driver,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    progress,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incident import Incident
from trainwarden_remediator.objections import Recheck
from trainwarden_remediator.store import Call, Store
from trainwarden_remediator.world import World

log = logging.getLogger(__name__)

Jobs = Sequence[ScheduledJob] | Unknown
_NOTHING = CallResult(CallOutcome.UNCLEAR, "nothing was called")


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
    `crashpoint` is called around every call to a scheduler; tests make it exit there.
    """

    def __init__(
        self,
        world: World,
        store: Store,
        checkpoint_trust: Callable[[str], str | None],
        crashpoint: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._world = world
        self._store = store
        self._checkpoint_trust = checkpoint_trust
        self._crashpoint = crashpoint

    def prepare(self, incident: Incident, target: RestartTarget, jobs: Jobs) -> Answer:
        """End the attempt and hold the next start, unless a fresh reading of any source speaks against it.

        `jobs` are all marked jobs as of the round: a list of them right before each call would be one of all jobs.
        """
        driver = self._fresh(incident, target)
        if objection := self._objection(incident, driver, jobs):
            return Answer(objection)
        seen = progress(driver.job(target.job_id), target, two_phase=driver.two_phase)
        if seen is not RestartProgress.UNTOUCHED:
            return Answer(Wait(seen.value))
        self._announce(incident)
        return self._call("prepare", driver.prepare, driver, target)

    def commit(self, incident: Incident, target: RestartTarget, jobs: Jobs, late: ScheduledJob | None = None) -> Answer:
        """Give the next start.

        Args:
            incident: whose start it is.
            target: the start that it replaces.
            jobs: as with `prepare`.
            late: the job as a late call has left it; it is released only if it still is like that.
        """
        driver = self._fresh(incident, target)
        if not driver.two_phase:
            # One call that ends the old start and gives the next needs the same checks as one that only ends.
            if objection := self._objection(incident, driver, jobs):
                return Answer(objection)
            self._announce(incident)
        job = driver.job(target.job_id)
        seen = progress(job, target, two_phase=driver.two_phase)
        if job != late if late else seen is not RestartProgress.READY:
            return Answer(Wait(seen.value))
        return replace(self._call("commit", driver.commit, driver, target), late=late is not None)

    def _fresh(self, incident: Incident, target: RestartTarget) -> Driver:
        return self._world.drivers[incident.scheduler or ""].snapshot((target.job_id,))

    def _objection(self, incident: Incident, driver: Driver, jobs: Jobs) -> Wait | Refuse | None:
        world = replace(self._world, drivers={**self._world.drivers, driver.name: driver})
        return Recheck(world, self._store, jobs).against(incident)

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
        self, name: str, call: Callable[[RestartTarget], CallResult], driver: Driver, target: RestartTarget
    ) -> Answer:
        now = self._world.clock.now()
        made = Call(target.incident, driver.name, target.job_id, target.generation, name, now)
        number = self._store.begin_call(made)
        self._crashpoint(f"{name}: before call")
        result = call(target)
        self._crashpoint(f"{name}: after call")
        self._store.end_call(number, result.outcome.value)
        after = RestartProgress.UNKNOWN
        if result.outcome is CallOutcome.REFUSED:
            job = driver.snapshot((target.job_id,)).job(target.job_id)
            after = progress(job, target, two_phase=driver.two_phase)
        return Answer(None, result, after)
