"""The driver `slurm` in the world of simulation.py: its commands reach a SLURM around the truth of that world's job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from tests.unit.remediator.fake_driver import note_accepted
from tests.unit.remediator.fake_slurm import SUBMITTED, FakeSlurm
from tests.unit.remediator.real_driver import RealDriver
from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, Cluster
from trainwarden.clients.slurm.client import ControlResult, SlurmClient, SlurmError, Submission
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden_remediator.drivers.driver import (
    CallOutcome,
    CallResult,
    JobState,
    RestartTarget,
    ScheduledJob,
)
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission
from trainwarden_remediator.incidents.incident import Incident, State


class SlurmOf(FakeSlurm):
    """A SLURM whose commands have the faults of a driver's calls.

    Args:
        cluster: the job, and those that come after it.
        driver: whose faults these are.
        requeue: whether the job may be requeued.
    """

    def __init__(self, cluster: Cluster, driver: SimulatedSlurmDriver, *, requeue: bool) -> None:
        super().__init__(cluster, requeue=requeue)
        self._driver = driver
        self._old: dict[str, SlurmJob] = {}
        self.lost_answers = 0

    def remember(self) -> None:
        """Note what it would answer now, for a while in which it is behind."""
        self._old = {job.job_id: job for job in super().jobs()}

    def jobs(self, *job_ids: str) -> Iterator[SlurmJob]:
        self._check_up("squeue")
        if not self._driver.is_behind:
            yield from super().jobs(*job_ids)
            return
        for job_id in job_ids or self._old:
            if job_id in self._old:
                yield self._old[job_id]

    def accounted_state(self, _job_id: str) -> str:
        self._check_up("sacct")
        return ""

    def boot_time(self) -> str:
        self._check_up("scontrol ping")
        return str(self._driver.boots)

    def _check_up(self, command: str) -> None:
        if self._driver.down:
            raise SlurmError("timeout", f"{command}: no answer")

    def control(self, verb: str, target: str, *options: str) -> ControlResult:
        if verb == "requeuehold":
            return self._end(lambda late: self._cluster.requeue_hold(self._generation, ended=not options, late=late))

        def release(late: bool) -> None:
            if self._requeue:
                self._cluster.release(late=late)
            else:
                known = self._driver.target.incident in self._cluster.accepted
                self._cluster.release_job(target, late=late or not known)

        self._driver.check_intent("commit")
        return self._call("commit", release)

    @property
    def _generation(self) -> int:
        return self._driver.target.generation

    def cancel(self, target: str) -> ControlResult:
        self._cluster.stopped = self._cluster.clock.elapsed
        return self._end(lambda late: self._cluster.stop(target, late=late))

    def cancel_pending(self, target: str) -> ControlResult:
        return self._call("discard", lambda _late: self._cluster.discard_job(target))

    def update(self, target: str, **fields: str) -> ControlResult:
        if self._driver.down:
            return ControlResult(accepted=False, refused=False, detail="no answer")
        return super().update(target, **fields)

    def submit(self, _script: str, *options: str, **_more: object) -> Submission:
        [comment] = [each.removeprefix("--comment=") for each in options if each.startswith("--comment=")]
        marks = SUBMITTED.search(comment)
        assert marks is not None
        assert "--hold" in options
        made: list[str] = []

        def submit(_late: bool) -> None:
            made.append(self._cluster.submit(*marks.groups()))
            self.comments[made[-1]] = comment

        self._driver.check_intent("submit")
        if self._cluster.state is JobState.FAILED:
            self._driver.check_allowed()
        answer = self._call("submit", submit)
        return Submission(made[0] if answer.accepted and made else None, answer.detail, answer.refused)

    def _end(self, effect: Callable[[bool], None]) -> ControlResult:
        """Call what ends an attempt."""
        self._driver.check_end()
        answer = self._call("prepare", effect)
        if not answer.refused:
            self._driver.note_end()
        return answer

    def _call(self, name: str, effect: Callable[[bool], None]) -> ControlResult:
        answer = self._driver.command(name, effect)
        return ControlResult(answer is CallOutcome.ACCEPTED, answer is CallOutcome.REFUSED, f"{name}: {answer.value}")


class SimulatedSlurmDriver(RealDriver):
    """The real driver; what `FakeDriver` does to calls happens to its commands.

    Args:
        cluster: the job.
        durable: what the database holds of an intent.
        folder: where scripts are kept of jobs that must not be requeued; None where they may be.
    """

    def __init__(self, cluster: Cluster, durable: Callable[[str], Incident | None], folder: Path | None) -> None:
        self._cluster = cluster
        self._slurm = SlurmOf(cluster, self, requeue=folder is None)
        client = cast("SlurmClient", self._slurm)
        resubmission = None if folder is None else Resubmission(client, folder)
        super().__init__([cluster], durable, SlurmDriver(client, {os.getuid()}, resubmission))
        self._target: RestartTarget | None = None

    @property
    def target(self) -> RestartTarget:
        """That of the call that is under way."""
        assert self._target is not None
        return self._target

    def answer_with_what_was(self, seconds: float) -> None:
        if not self.is_behind:
            self._slurm.remember()
        self._old_until = self.clock.elapsed + seconds

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        return [] if job.refusal is None else [job.refusal]

    def prepare(self, target: RestartTarget) -> CallResult:
        self._target = target
        return self._real.prepare(target)

    def exclude(self, target: RestartTarget) -> CallResult:
        self._target = target
        return self._real.exclude(target)

    def commit(self, target: RestartTarget) -> CallResult:
        self._target = target
        self.environment, self.excluded = dict(target.environment), target.exclude_nodes
        result = self._real.commit(target)
        note_accepted(self._cluster, target, result)
        return result

    def discard(self, target: RestartTarget) -> CallResult:
        self._target = target
        self.made.append((target.incident, "discard"))
        return self._real.discard(target)

    def command(self, name: str, effect: Callable[[bool], None]) -> CallOutcome:
        """Let a command take effect, as the next fault has it."""
        behind = self.is_behind

        def apply(*, late: bool = False) -> CallOutcome:
            effect(late or behind)
            return CallOutcome.ACCEPTED

        return self._call(name, self._cluster, apply, self.target).outcome

    def check_intent(self, name: str) -> None:
        """Note a call that is not on record."""
        states = (State.PREPARING,) if name == "prepare" else (State.COMMITTED, State.VERIFYING)
        self._check_intent("prepare" if name == "prepare" else "commit", self.target, states)

    def check_allowed(self) -> None:
        """Note an end of the attempt that is not allowed now."""
        self._check_allowed(self._cluster, self.target)

    def check_end(self) -> None:
        """Note what a call that ends an attempt must not be."""
        self.check_intent("prepare")
        self.check_allowed()
        asked = self.asked_to_end.get((self.target.job_id, self.target.generation))
        if asked is not None and self.clock.elapsed - asked < DOUBT_SECONDS:
            self._cluster.violations.append("L3: called again while the earlier call may still take effect")

    def note_end(self) -> None:
        """Note when a call to end an attempt was made that was not refused."""
        self.asked_to_end[self.target.job_id, self.target.generation] = self.clock.elapsed
