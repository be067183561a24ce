"""The remediator's state machine on a real Ray, in this process: only Prometheus and Alertmanager are stand-ins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ray.head import Head
from tests.waiting import wait_until
from trainwarden.clients.ray import RayDashboardOverHttp
from trainwarden.clients.ray_jobs import RayJobs
from trainwarden.record.folder import write_json
from trainwarden.record.progress import Checkpoint
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import ThreadedCalls
from trainwarden_remediator.act.capture import Capturer
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.ray import RayDriver
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.incidents.incident import OPEN_STATES, Alert, Incident
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.snapshot import Snapshot
from trainwarden_remediator.observe.world import Firing, Records, SystemClock, World
from trainwarden_remediator.policies.policy import load_policy
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers
from trainwarden_remediator.worker import Worker

DOUBT_SECONDS = 4.0
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
class Training:
    """A job that hangs at its first start and trains on at each later one; where it `crashes`, it records that."""

    run_id: str
    job_id: str
    file: Path
    crashes: bool = False

    def end(self, status: int) -> None:
        """Let its script end with a status."""
        written = self.file.with_suffix(".ending")
        written.write_text(str(status), encoding="utf-8")
        written.rename(self.file.with_suffix(".end"))

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
class ActingRemediator:
    """The loop of the remediator, a round for each call of `until`'s condition, with the readings of a real Ray.

    `at`: what happens at a named point around a call.
    """

    head: Head
    folder: Path
    templates: RayTemplates = field(default_factory=lambda: RayTemplates(None))
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "token").write_text(self.head.token)
        self.clock = SystemClock()
        self.engine = open_database(self.folder)
        self.store = Store(self.engine, self.clock)
        metrics = Metrics(["prometheus", "ray"], self.clock.monotonic)
        timers = Timers(self.store.transactions, self.clock)
        policy = Policies(load_policy("default"), {}, mode="act")
        dashboard = RayDashboardOverHttp(self.head.url, 30.0, token_file=self.folder / "token")
        self.jobs = RayJobs(dashboard)
        self.driver = RayDriver(self.jobs, self.templates)
        world = World(self.clock, self, self, {"ray": self.driver}, Records(self.folder / "runs"))
        woken = threading.Event()
        snapshot = Snapshot(world, 0.0)
        self.calls: ThreadedCalls[Answer] = ThreadedCalls(4, woken.set)
        remediator = Remediator(
            snapshot.world,
            self.store,
            metrics,
            timers,
            Actor(world, self.store, policy.checkpoint_trust, self._point),
            self.calls,
            doubt_window=DOUBT_SECONDS,
            repeat_after=1.0,
            verify_timeout=600,
            captures=Capturer(self.folder, self.folder / "runs", {}),
        )
        scores = Scores(self.engine, self.clock, self)
        examiner = Examiner(snapshot.world, self.store, policy, metrics, timers, remediator.failed_again, scores)
        sweeper = Sweeper(snapshot.world, self.store, timers, doubt_window=DOUBT_SECONDS)
        storms = Storms(snapshot.world, self.store, limit=1000, window=600)
        self.worker = Worker(
            snapshot,
            self.store,
            examiner,
            remediator,
            metrics,
            timers,
            sweeper,
            storms,
            woken,
            interval=0.2,
            busy_interval=0.2,
        )

    def submit(self, run_id: str, *, ignores_term: bool = False, **fields: Any) -> Training:
        """Submit a job of a run, and wait until it runs; `fields` are of the request."""
        file = self.folder / f"{run_id}.starts"
        script = self.folder / f"{run_id}.sh"
        on_term = "" if ignores_term else ENDS.format(starts=file)
        script.write_text(SCRIPT.format(starts=file, end=file.with_suffix(".end"), on_term=on_term), encoding="utf-8")
        metadata = {"trainwarden_run_id": run_id, "team": "llm"}
        job = self.head.submit(f"sh {script}", submission_id=f"raysubmit_{run_id}", metadata=metadata, **fields)
        training = Training(run_id, job, file)
        wait_until(
            lambda: training.starts == [job],
            lambda: f"the first start: {self.head.call(f'/api/jobs/{job}')}",
            timeout=60,
        )
        self.trainings.append(training)
        return training

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

    def until(self, condition: Callable[[], object], seconds: float = 90.0) -> None:
        """Go on, round by round, until a condition holds."""

        def probe() -> bool:
            self.worker.tick()
            return bool(condition())

        wait_until(probe, self.report, timeout=seconds)

    def incidents(self, training: Training) -> list[Incident]:
        """All incidents of a run."""
        return self.store.of_run(training.run_id)

    def over(self, training: Training) -> bool:
        """Whether there was an incident, and all are over."""
        found = self.incidents(training)
        return bool(found) and not any(each.state in OPEN_STATES for each in found)

    def report(self) -> str:
        """All that was decided and done, for the message of a test that fails."""
        lines = [f"{each.run_id} {each.lines}" for each in self.trainings]
        log = [
            f"{event.time:.1f} {event.state} {event.detail}"
            for _, events in self.store.with_events()
            for event in events
        ]
        return "\n".join([*lines, *log, *map(str, self.store.pending())])

    def close(self) -> None:
        """End all; the jobs go on."""
        self.calls.finish()
        self.engine.dispose()

    def firing(self) -> Firing:
        """The AlertSource: each run stalls, or has failed, at its first attempt."""
        found = []
        for each in self.trainings:
            seen = each.evidence
            if seen.attempt:
                continue
            labels = {
                "alertname": "TrainRunFailed" if each.crashes else "TrainRunStalled",
                "run_id": each.run_id,
                "job_id": each.job_id,
                "attempt": "0",
                "scheduler": "ray",
                "failure_mode": "crash" if each.crashes else "stall",
                "remediate": "true",
            }
            found.append(Alert(labels, 1_800_000_000.0))
        return found

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        """The RunSource."""
        found = {each.run_id: each.evidence for each in self.trainings}
        return {run_id: found.get(run_id) for run_id in run_ids}

    def restarts(self, _database: str) -> dict[str, float]:
        """No other remediator is on record."""
        return {}

    def _point(self, name: str) -> None:
        if name in self.at:
            self.at.pop(name)()
