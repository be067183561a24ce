"""The remediator's state machine on a real cluster, in this process: only Prometheus and Alertmanager are stand-ins."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden_remediator.act.act import Actor, Answer
from trainwarden_remediator.act.calls import ThreadedCalls
from trainwarden_remediator.act.capture import Capturer
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.incidents.incident import OPEN_STATES, Alert, Incident
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes
from trainwarden_remediator.observe.snapshot import Snapshot
from trainwarden_remediator.observe.world import Firing, Records, SystemClock, World
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import load_policy
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers
from trainwarden_remediator.worker import Worker

DOUBT_SECONDS = 4.0
# Each start of the job appends a line to a file of its own: the oracle, which no controller can take back.
BATCH = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output=/dev/null
echo "${{SLURM_RESTART_COUNT:-0}} $$ $SLURM_JOB_ID" >> {starts}
until [ -e {end} ]; do sleep 0.5; done
exit $(cat {end})
"""


@dataclass
class Training:
    """A job that hangs at its first start, and trains on at each later one while `progresses`.

    `failure` is what its record says of its end, where it fails instead of hanging; `alerts`: whether an alert fires.
    """

    cluster: Cluster
    run_id: str
    job_id: int
    file: Path
    progresses: bool = True
    failure: str | None = None
    alerts: bool = True

    def end(self, status: int) -> None:
        """Let its script end with a status."""
        written = self.file.with_suffix(".ending")
        written.write_text(str(status), encoding="utf-8")
        written.rename(self.file.with_suffix(".end"))

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
class ActingRemediator:
    """The loop of the remediator, a round for each call of `until`'s condition, with the readings of a real SLURM.

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
        self.folder.mkdir(exist_ok=True)
        self.clock = SystemClock()
        self.engine = open_database(self.folder)
        self.store = Store(self.engine, self.clock)
        metrics = Metrics(["prometheus", "slurm"], self.clock.monotonic)
        timers = Timers(self.store.transactions, self.clock)
        policy = Policies(replace(load_policy("default"), limits=self.limits), {}, mode="act")
        client = slurm_client(self.cluster.bin, 10.0)
        resubmission = Resubmission(client, self.folder / "submissions") if self.resubmit else None
        self.driver = driver = SlurmDriver(client, {os.getuid()}, resubmission)
        world = World(self.clock, self, self, {"slurm": driver}, Records(None), self.nodes)
        woken = threading.Event()
        snapshot = Snapshot(world, 0.0)
        captures = None
        if self.capture_timeout is not None:
            describe = slurm_client(self.cluster.bin, self.capture_timeout / 3).described

            def described(job_id: str) -> bytes:
                self._point("capture")
                return describe(job_id)

            captures = Capturer(self.folder, None, {"slurm": described}, self.capture_timeout)
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
            captures=captures,
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

    def submit(self, run_id: str, *options: str) -> Training:
        """Submit a job of a run, and wait until it runs."""
        file = self.folder / f"{run_id}.starts"
        script = self.folder / f"{run_id}.sbatch"
        script.write_text(BATCH.format(starts=file, end=file.with_suffix(".end")), encoding="utf-8")
        job_id = self.cluster.submit(script, options=[f"--comment=trainwarden:{run_id}", *options])
        training = Training(self.cluster, run_id, job_id, file)
        wait_until(lambda: training.starts == [0], lambda: f"the first start\n{self.cluster.logs()}")
        self.trainings.append(training)
        return training

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
        lines = [f"{each.run_id} starts {each.starts} {self.cluster.job(each.job_id)}" for each in self.trainings]
        log = [
            f"{event.time:.1f} {event.state} {event.detail}"
            for _, events in self.store.with_events()
            for event in events
        ]
        return "\n".join([*lines, *log, self.cluster.logs(60)])

    def close(self) -> None:
        """End all, and the jobs."""
        self.calls.finish()
        for each in self.trainings:
            self.cluster.run("scancel", str(each.job_id), *{str(job_id) for job_id, _ in each.starts_of_jobs})
        self.engine.dispose()

    def firing(self) -> Firing:
        """The AlertSource: each run stalls at its first attempt."""
        found = []
        for each in self.trainings:
            seen = each.evidence
            if seen is None or seen.attempt or not each.alerts:
                continue
            labels = {
                "alertname": "TrainRunFailed" if each.failure else "TrainRunStalled",
                "run_id": each.run_id,
                "job_id": str(each.job_id),
                "attempt": str(seen.attempt),
                "scheduler": "slurm",
                "failure_mode": "crash" if each.failure else "stall",
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
