"""What was decided before about a run and its present attempt."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden.identity import AttemptKey
from trainwarden_remediator.decide.verdict import Contradiction, Lost, Refuse, Wait
from trainwarden_remediator.drivers.driver import ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.history import has_risen
from trainwarden_remediator.incidents.incident import OPEN_STATES, Action, Alert, Incident, State, parse_key
from trainwarden_remediator.incidents.roots import roots_before
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store

# Until the start is given, a restart may still turn out to be unnecessary: another alert waits for that.
_REVOCABLE = frozenset(OPEN_STATES) - {State.VERIFYING}
# Ends of a decision to restart that leave the attempt as it is.
_LEFT = (State.ESCALATED, State.ADOPTED)


class EarlierDecisions:
    """The incidents on record, as the decision about a further alert needs them."""

    def __init__(self, world: World, store: Store) -> None:
        self._world = world
        self._store = store

    def restarts(self, run: ReportedRun, cluster: str) -> list[Incident]:
        """Return the restarts of a run that were decided, oldest first."""
        return [each for each in self._store.of_run(run.run_id, cluster) if each.action is Action.RESTART]

    def open_restart(self, run: ReportedRun, cluster: str) -> Incident | None:
        """Return the open restart of this very attempt."""
        of_attempt = (each for each in self.restarts(run, cluster) if each.attempt_key == run.attempt_key)
        return next((each for each in of_attempt if each.state in OPEN_STATES), None)

    def against(self, run: ReportedRun, cluster: str) -> Refuse | None:
        """Refuse where this very attempt was restarted already, or a person was paged or has vetoed it instead.

        One that has gone on since is for a person once more: that page is over.
        """
        if (vetoed := self._vetoed(run, cluster)) is not None:
            return vetoed
        for earlier in self.restarts(run, cluster):
            if earlier.attempt_key == run.attempt_key and earlier.state not in _REVOCABLE:
                if earlier.state in _LEFT and not earlier.paging and has_risen(earlier.step_before, run.high_water):
                    return Lost(
                        "this attempt fails again, and a restart of it was decided already: "
                        f"incident {earlier.id} is {earlier.state.value}, {earlier.reason}"
                    )
                return Refuse(
                    f"this attempt has been restarted by the remediator itself already: "
                    f"incident {earlier.id} is {earlier.state.value}"
                    if earlier.committed is not None
                    else f"a restart of this attempt was decided already: "
                    f"incident {earlier.id} is {earlier.state.value}, {earlier.reason}"
                )
        return None

    def _vetoed(self, run: ReportedRun, cluster: str) -> Refuse | None:
        """Refuse where a person leaves the attempt as it is, whichever alert is about it, until its job has ended."""
        found = self._store.answers.veto(run.run_id, cluster, run.attempt_key)
        if found is None or self._world.has_ended(run.attempt_key):
            return None
        if has_risen(found.step, run.high_water):
            return Lost(f"this attempt fails again, and {found.by} has vetoed that it is restarted")
        return Refuse(f"vetoed by {found.by}: this attempt is left as it is")

    def refusal_by_root(self, alert: Alert, run: ReportedRun, firing: Mapping[str, Alert]) -> Incident | None:
        """Return the decision of a policy not to restart this very attempt, for an alert nearer to the cause."""
        for root in roots_before(alert, firing.values()):
            found = self._store.decided_for(root.key)
            # Without a budget it was no policy that decided, or one that restarts nothing.
            if found is not None and found.budget_limit is not None and found.attempt_key == run.attempt_key:
                return None if found.action is Action.RESTART else found
        return None

    def withdrawn(self, run: ReportedRun, cluster: str) -> list[Incident]:
        """Return the restarts of this very attempt that were decided and withdrawn."""
        of_run = self._store.of_run(run.run_id, cluster)
        of_attempt = [each for each in of_run if each.attempt_key == run.attempt_key]
        return [each for each in of_attempt if each.state is State.SUPPRESSED and each.not_before]

    def unrecorded(self, run: ReportedRun) -> Wait | None:
        """Wait for a person where the database was put back and lacks restarts: budgets would begin anew."""
        remembered = self._world.runs.restarts(self._store.database)
        if isinstance(remembered, Unknown):
            return Wait(remembered.reason)
        seen = remembered.get(run.run_id, 0.0)
        recorded = self._store.adoptions.restarts().get(run.run_id, 0)
        what = f"Prometheus has seen {seen:g} restarts of the run on record, and the database has {recorded}"
        unknown = self._unknown_incident(run)
        if seen <= recorded:
            if unknown is None:
                return None
            seen = recorded + 1.0
            what = f"the run was restarted by incident {unknown}, which the database does not have"
        self._store.adoptions.note(run.run_id, int(seen), unknown)
        return Contradiction(
            f"{what}: it was put back, or is another one. Nothing is restarted before "
            f"trainwarden-remediator adopt --run-id {run.run_id}"
        )

    def _unknown_incident(self, run: ReportedRun) -> str | None:
        """Return the incident that has restarted the run's job, by that, and that is neither on record nor adopted.

        The memory of Prometheus may be as old as the database.
        """
        key = parse_key(run.attempt_key)
        driver = self._world.drivers.get(key.scheduler) if key else None
        job = driver.job(key.job_id) if key and driver else None
        if not isinstance(job, ScheduledJob) or job.hold_of is None or driver is None:
            return None
        before = str(AttemptKey(driver.name, job.job_id, job.generation - 1))
        of_job = self._store.of_job(driver.name, job.job_id)
        if any(each.id == job.hold_of or (each.attempt_key == before and each.committed) for each in of_job):
            return None
        return None if job.hold_of == self._store.adoptions.adopted(run.run_id) else job.hold_of
