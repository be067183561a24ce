"""The client of SLURM's commands, around the truth of one simulated job: what squeue shows, and what calls do to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from tests.unit.remediator.simulated_cluster import Cluster
from trainwarden.clients.slurm.client import ControlResult, Submission
from trainwarden.clients.slurm.jobs import SlurmJob, read_job
from trainwarden.clients.slurm.rights import Rights
from trainwarden.clients.slurm.submission import Submitted
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob

SUBMITTED = re.compile(r"trainwarden-submitted:(\S+) trainwarden-replaces:(\S+)")
_STATES = {
    JobState.RUNNING: "RUNNING",
    JobState.ENDING: "COMPLETING",
    JobState.HELD: "PENDING",
    JobState.WAITING: "PENDING",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
    JobState.COMPLETED: "COMPLETED",
}


class FakeSlurm:
    """Stands in for `SlurmClient`. The first `lost_answers` calls that change something take effect without an answer.

    Args:
        cluster: the job, and those that come after it.
        requeue: whether the job may be requeued.
    """

    def __init__(self, cluster: Cluster, *, requeue: bool = True) -> None:
        self._cluster = cluster
        self._requeue = requeue
        self.comments = {cluster.job_id: f"trainwarden:{cluster.run_id}"}
        self.calls: list[str] = []
        self.lost_answers = 2

    def jobs(self, *job_ids: str) -> Iterator[SlurmJob]:
        """List these jobs, or all."""
        for job_id in job_ids or self._cluster.ids():
            if job_id in self._cluster.ids():
                yield read_job(self._entry(self._cluster.shown(job_id)))

    def _entry(self, job: ScheduledJob) -> dict[str, Any]:
        is_held, is_ours = job.state is JobState.HELD, job.run_id == self._cluster.run_id
        return {
            "job_id": int(job.job_id),
            "job_state": _STATES[job.state],
            "restart_cnt": job.generation,
            "priority": 0 if is_held else 1,
            "state_reason": "JobHeldUser" if is_held else "None",
            "state_description": "job requeued in held state" if job.held_by_requeue else "",
            "user_id": os.getuid(),
            "requeue": self._requeue,
            "comment": self.comments[job.job_id] if is_ours else f"trainwarden:{job.run_id}",
            "array_job_id": 0,
            "array_task_id": None,
            "het_job_id": 0,
        }

    def control(self, verb: str, target: str, *options: str) -> ControlResult:
        """`scontrol requeuehold` and `scontrol release`."""
        if verb == "requeuehold":
            self._cluster.requeue_hold(self._cluster.generation, ended=not options)
        elif self._requeue:
            self._cluster.release()
        else:
            self._cluster.release_job(target)
        return self._answer(f"{verb} {target}")

    def update(self, target: str, **fields: str) -> ControlResult:
        """`scontrol update`, of the comment alone."""
        self.comments[target] = fields["Comment"]
        return ControlResult(accepted=True, refused=False, detail="ok")

    def cancel(self, target: str) -> ControlResult:
        """`scancel`."""
        self._cluster.stop(target)
        return self._answer(f"scancel {target}")

    def cancel_pending(self, target: str) -> ControlResult:
        """`scancel --state=PENDING`."""
        self._cluster.discard_job(target)
        return self._answer(f"discard {target}")

    def submit(self, _script: str, *options: str, **_more: object) -> Submission:
        """`sbatch --hold`."""
        [comment] = [each.removeprefix("--comment=") for each in options if each.startswith("--comment=")]
        marks = SUBMITTED.search(comment)
        assert marks is not None
        assert "--hold" in options
        made = self._cluster.submit(*marks.groups())
        self.comments[made] = comment
        answer = self._answer(f"sbatch {made}")
        return Submission(made if answer.accepted else None, answer.detail)

    def submitted(self, job_id: str, run_id: str) -> Submitted:
        """How the job was submitted."""
        return Submitted(job_id, run_id, os.getuid(), os.getgid(), "#!/bin/sh\n", (), self.comments[job_id])

    def accounted_state(self, _job_id: str) -> str:
        """No job is forgotten here."""
        raise AssertionError

    def boot_time(self) -> str:
        """The controller is never started again."""
        return "once"

    def rights(self, user: str, uid: int) -> Rights:
        """Not called."""
        raise AssertionError(user, uid)

    def _answer(self, call: str) -> ControlResult:
        self.calls.append(call)
        if len(self.calls) <= self.lost_answers:
            return ControlResult(accepted=False, refused=False, detail="no answer")
        return ControlResult(accepted=True, refused=False, detail="ok")
