"""One restart as its scheduler shows it in this round: the start that is replaced, and what has become of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwarden_remediator.drivers.driver import (
    Driver,
    JobState,
    Reading,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    Shape,
    restart_progress,
    successor_of,
)
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Incident, State
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.doubt import Doubt
from trainwarden_remediator.store.timers import Timers

# The timer of an incident whose call is seen to end the attempt, until that has ended.
ENDS = "ends"


@dataclass(frozen=True)
class Restart:
    """An incident, the driver of its job, and the start that is to be replaced."""

    incident: Incident
    driver: Driver
    target: RestartTarget

    @property
    def job(self) -> Reading:
        """The job whose start is replaced."""
        return self.driver.job(self.target.job_id)

    @property
    def replaced(self) -> ScheduledJob:
        """The same; where the scheduler has forgotten it, as some minutes after its end, what is known of it."""
        job, target = self.job, self.target
        if isinstance(job, ScheduledJob):
            return job
        return ScheduledJob(target.job_id, target.run_id, target.generation, JobState.CANCELLED, "", shape=target.shape)

    @property
    def progress(self) -> RestartProgress:
        """How far the replacement has come."""
        return restart_progress(self.driver, self.target)

    @property
    def successor(self) -> ScheduledJob | None:
        """The new job that the start comes back as, if the scheduler shows one."""
        submitted = self.driver.submitted(self.target) if self.target.shape.gives_new_job else ()
        return None if isinstance(submitted, Unknown) else successor_of(submitted, self.target)

    @property
    def is_token_seen(self) -> bool:
        """Whether the job shows the start that was given for the incident."""
        return self.target.incident in getattr(self.job, "tokens", {})

    def went_back(self, seen: RestartProgress) -> bool:
        """Return whether the scheduler shows the old start again, after it had shown that it was replaced."""
        job, target = self.job, self.target
        if not isinstance(job, ScheduledJob):
            return False
        if target.shape is Shape.REQUEUE:
            return job.run_id == target.run_id and job.generation <= target.generation
        runs_still = job.state is JobState.RUNNING and job.generation == target.generation
        return target.shape.gives_new_job and runs_still and seen is not RestartProgress.UNKNOWN

    @property
    def is_newer_start_held(self) -> bool:
        """Whether a newer start than the one to be ended is held as only a call of the remediator leaves it."""
        job, target = self.job, self.target
        return (
            isinstance(job, ScheduledJob)
            and job.run_id == target.run_id
            and job.state is JobState.HELD
            and job.held_by_requeue
            and job.refusal is None
            and job.generation > target.generation + 1
        )


class Restarts:
    """Makes the restart of an incident; `checkpoint_trust` is as `Remediator` has it."""

    def __init__(
        self, world: World, timers: Timers, doubt: Doubt, checkpoint_trust: Callable[[str], str | None]
    ) -> None:
        self._world = world
        self._timers = timers
        self._doubt = doubt
        self._checkpoint_trust = checkpoint_trust

    def of(self, incident: Incident, driver: Driver) -> Restart | Unknown:
        """Return the restart of an incident as it is now; unknown where its record does not answer what a job needs."""
        shape = self.shape(incident)
        environment = self._environment(incident, shape)
        if isinstance(environment, Unknown):
            return environment
        target = RestartTarget(
            incident=incident.id,
            run_id=incident.run_id,
            job_id=incident.job_id or "",
            generation=incident.generation,
            reason=incident.reason,
            environment=environment,
            exclude_nodes=tuple(sorted(incident.excluded)),
            shape=shape,
            attempt=incident.attempt,
            ended=self._has_ended(incident),
            successor=incident.successor or "",
        )
        return Restart(incident, driver, target)

    def shape(self, incident: Incident) -> Shape:
        """Return the shape of a restart: that with which it has begun, else that of its job."""
        if incident.shape:
            return Shape(incident.shape)
        driver = self._world.drivers[incident.scheduler or ""]
        job = driver.job(incident.job_id or "")
        return (job.shape if isinstance(job, ScheduledJob) else None) or driver.shape

    def _has_ended(self, incident: Incident) -> bool:
        """Return whether the end of the attempt is on record, or a call may have caused what is seen of it now."""
        if incident.state not in (State.PREPARING, State.IN_DOUBT):
            return incident.state in (State.PREPARED, State.COMMITTED, State.VERIFYING)
        return incident.calls > 0 and (
            self._timers.elapsed(incident.id, ENDS) is not None or self._doubt.lasts(incident)
        )

    def _environment(self, incident: Incident, shape: Shape) -> dict[str, str] | Unknown:
        """Return what the new start is to find in its environment."""
        trust = self._checkpoint_trust(incident.policy)
        environment = {"TRAINWARDEN_CHECKPOINT_TRUST": trust} if trust else {}
        checkpoint = incident.resume_checkpoint
        # Ray's users have scripts that do not use the library: they read it themselves.
        if checkpoint and shape is Shape.SUBMIT:
            environment["TRAINWARDEN_RESUME_CHECKPOINT"] = checkpoint
        if checkpoint and shape.gives_new_job:
            step = incident.checkpoint_step
            variables = self._world.records.resume_variables(incident.run_id, checkpoint, step)
            if isinstance(variables, Unknown):
                return variables
            environment |= variables
        return environment
