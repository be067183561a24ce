"""The remediator's loop on a real SLURM."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests import acting_remediator
from tests.acting_remediator import ScheduledTraining
from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden_remediator.act.capture import Capturer
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes
from trainwarden_remediator.policies.limits import Limits

# Each start of the job appends a line to a file of its own: the oracle, which no controller can take back.
BATCH = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output=/dev/null
echo "${{SLURM_RESTART_COUNT:-0}} $$ $SLURM_JOB_ID" >> {starts}
until [ -e {end} ]; do sleep 0.5; done
exit $(cat {end})
"""


@dataclass
class Training(ScheduledTraining):
    """A job that hangs at its first start, and trains on at each later one while `progresses`.

    `failure` is what its record says of its end, where it fails instead of hanging.
    """

    cluster: Cluster
    job_id: int
    progresses: bool = True
    failure: str | None = None

    @property
    def starts(self) -> list[int]:
        """The restart counts of all starts that happened, oldest first."""
        return [count for _, count in self.starts_of_jobs]

    @property
    def starts_of_jobs(self) -> list[tuple[int, int]]:
        """The job and its restart count at each start."""
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        return [(int(line.split()[2]), int(line.split()[0])) for line in text.splitlines() if len(line.split()) == 3]

    @property
    def evidence(self) -> ReportedRun | None:
        """The run as Prometheus would show it."""
        starts = self.starts_of_jobs
        if not starts:
            return None
        newest = list(dict.fromkeys(starts))
        step = 40.0 + (len(newest) - 1 if self.progresses else 0)
        key = f"slurm:{starts[-1][0]}:{starts[-1][1]}"
        state = "failed" if self.failure and len(newest) == 1 else "running"
        return ReportedRun(self.run_id, len(newest) - 1, key, state, step, 40.0, failure=self.failure)


@dataclass
class ActingRemediator(acting_remediator.ActingRemediator[Training]):
    """The loop on a real SLURM.

    `capture_timeout`: seconds for what is captured before an attempt is ended; None where nothing is.
    `nodes`: which nodes have evidence of a defect; `limits`: of its policy; `resubmit`: what cannot be requeued is
    submitted again.
    """

    cluster: Cluster
    folder: Path
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)
    capture_timeout: float | None = None
    nodes: NodeSource = field(default_factory=NoNodes)
    limits: Limits = field(default_factory=Limits)
    resubmit: bool = False

    def __post_init__(self) -> None:
        client = slurm_client(self.cluster.bin, 10.0)
        resubmission = Resubmission(client, self.folder / "submissions") if self.resubmit else None
        self.driver = SlurmDriver(client, {os.getuid()}, resubmission)
        captures = None
        if self.capture_timeout is not None:
            describe = slurm_client(self.cluster.bin, self.capture_timeout / 3).described

            def described(job_id: str) -> bytes:
                self.point("capture")
                return describe(job_id)

            captures = Capturer(self.folder, None, {"slurm": described}, self.capture_timeout)
        self.assemble(self.driver, captures=captures, nodes=self.nodes, limits=self.limits)

    def submit(self, run_id: str, *options: str) -> Training:
        """Submit a job of a run, and wait until it runs."""
        file = self.folder / f"{run_id}.starts"
        script = self.folder / f"{run_id}.sbatch"
        script.write_text(BATCH.format(starts=file, end=file.with_suffix(".end")), encoding="utf-8")
        job_id = self.cluster.submit(script, options=[f"--comment=trainwarden:{run_id}", *options])
        training = Training(run_id, file, self.cluster, job_id)
        wait_until(lambda: training.starts == [0], lambda: f"the first start\n{self.cluster.logs()}")
        self.trainings.append(training)
        return training

    def queue(self, run_id: str) -> dict[str, str]:
        """The jobs of a run that have not ended, by id, with their states."""
        lines = self.cluster.run("squeue", "--noheader", "--format=%i %T %k").splitlines()
        marked = [line.split(maxsplit=2) for line in lines if f"trainwarden:{run_id}" in line.split()]
        return {each[0]: each[1] for each in marked}

    def came_back_once(self, training: Training) -> int:
        """Check that two jobs have started, once each, and that nothing of the run is left held; return the second."""
        [incident] = self.incidents(training)
        assert incident.state is State.DONE, self.report()
        jobs = [job_id for job_id, _ in training.starts_of_jobs]
        assert len(jobs) == 2, self.report()
        assert jobs[0] == training.job_id
        assert incident.successor == str(jobs[1]), self.report()
        assert self.queue(training.run_id) == {str(jobs[1]): "RUNNING"}, self.report()
        return jobs[1]

    def report(self) -> str:
        lines = [f"{each.run_id} starts {each.starts} {self.cluster.job(each.job_id)}" for each in self.trainings]
        return "\n".join([*lines, super().report(), self.cluster.logs(60)])

    def close(self) -> None:
        """End all, and the jobs."""
        super().close()
        for each in self.trainings:
            self.cluster.run("scancel", str(each.job_id), *{str(job_id) for job_id, _ in each.starts_of_jobs})
