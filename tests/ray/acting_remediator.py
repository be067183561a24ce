"""The remediator's loop on a real Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import acting_remediator
from tests.acting_remediator import ScheduledTraining
from tests.ray.head import Head
from tests.waiting import wait_until
from trainwarden.clients.ray import RayDashboardOverHttp
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden.record.folder import write_json
from trainwarden.record.progress import Checkpoint
from trainwarden_remediator.act.capture import Capturer
from trainwarden_remediator.drivers.ray import RayDriver
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.records import Records

# Each start, and each end by SIGTERM, appends a line to a file of its own: the oracle, which Ray cannot take back.
SCRIPT = """\
ID=$(echo "$RAY_JOB_CONFIG_JSON_ENV_VAR" | sed 's/.*"job_submission_id": "\\([^"]*\\)".*/\\1/')
echo "start $ID secret=$SECRET gpus=$CUDA_VISIBLE_DEVICES resume=$TRAINWARDEN_RESUME_CHECKPOINT" >> {starts}
trap '{on_term}' TERM
while [ ! -e {end} ]; do sleep 0.2; done
exit $(cat {end})
"""
ENDS = 'echo "end $ID" >> {starts}; exit 143'


@dataclass
class Training(ScheduledTraining):
    """A job that hangs at its first start and trains on at each later one; where it `crashes`, it records that."""

    job_id: str
    crashes: bool = False

    @property
    def lines(self) -> list[list[str]]:
        """What its starts and ends have written, oldest first."""
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        return [line.split() for line in text.splitlines()]

    @property
    def starts(self) -> list[str]:
        """The submissions of all starts that happened, oldest first."""
        return [line[1] for line in self.lines if line[0] == "start"]

    @property
    def evidence(self) -> ReportedRun:
        """The run as Prometheus would show it."""
        starts = self.starts
        again = len(starts) > 1
        state = "failed" if self.crashes and not again else "running"
        key = f"ray:{starts[-1]}:0"
        failure = "exception" if state == "failed" else None
        return ReportedRun(self.run_id, len(starts) - 1, key, state, 41.0 if again else 40.0, 40.0, failure=failure)


@dataclass
class ActingRemediator(acting_remediator.ActingRemediator[Training]):
    """The loop on a real Ray; `templates`: what Ray does not return of its jobs."""

    head: Head
    folder: Path
    templates: RayTemplates = field(default_factory=lambda: RayTemplates(None))
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "token").write_text(self.head.token)
        self.jobs = RayJobs(RayDashboardOverHttp(self.head.url, 30.0, token_file=self.folder / "token"))
        self.driver = RayDriver(self.jobs, self.templates)
        runs = self.folder / "runs"
        # Longer than Ray takes on a busy machine to stop a job: what ends later somebody else has stopped.
        self.assemble(self.driver, captures=Capturer(self.folder, runs, {}), records=Records(runs), doubt_window=20.0)

    def submit(self, run_id: str, *, ignores_term: bool = False, **fields: Any) -> Training:
        """Submit a job of a run, and wait until it runs; `fields` are of the request."""
        file = self.folder / f"{run_id}.starts"
        script = self.folder / f"{run_id}.sh"
        on_term = "" if ignores_term else ENDS.format(starts=file)
        script.write_text(SCRIPT.format(starts=file, end=file.with_suffix(".end"), on_term=on_term), encoding="utf-8")
        metadata = {"trainwarden_run_id": run_id, "team": "llm"}
        job = self.head.submit(f"sh {script}", submission_id=f"raysubmit_{run_id}", metadata=metadata, **fields)
        training = Training(run_id, file, job)
        wait_until(
            lambda: training.starts == [job],
            lambda: f"the first start: {self.head.call(f'/api/jobs/{job}')}",
            timeout=60,
        )
        self.trainings.append(training)
        return training

    def came_back(self, training: Training) -> str:
        """Check that there was one more start, after the end of the first; return its id."""
        assert [each.state for each in self.incidents(training)] == [State.DONE], self.report()
        [incident] = self.incidents(training)
        first, second = training.starts
        assert first == training.job_id
        assert second == f"{training.job_id}-a1-{incident.id[:8]}" == incident.successor
        ends = [line[1] for line in training.lines if line[0] == "end"]
        assert ends in ([], [first])
        return second

    def end_jobs(self) -> None:
        """Stop what runs of its runs: others use this head, too."""
        runs = {each.run_id for each in self.trainings}
        for job in self.head.call("/api/jobs/"):
            if (job["metadata"] or {}).get("trainwarden_run_id") in runs and job["status"] in ("PENDING", "RUNNING"):
                self.head.call(f"/api/jobs/{job['submission_id']}/stop", {})

    def saved(self, training: Training, step: int) -> str:
        """Write a record of the run, with a checkpoint that its present attempt has saved; return the checkpoint."""
        folder = self.folder / "runs" / training.run_id
        folder.mkdir(parents=True)
        path = folder / f"step_{step}.safetensors"
        path.write_bytes((2).to_bytes(8, "little") + b"{}")
        checkpoint = Checkpoint(path=str(path), step=step, time=time.time()).to_json()
        write_json(folder / "progress.json", {"step": step, "checkpoint": checkpoint, "checkpoints": [checkpoint]})
        write_json(folder / "resume.json", {"attempt_key": f"ray:{training.job_id}:0"})
        return str(path)
