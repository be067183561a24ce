"""Batch scripts without the library on a watched cluster, and the service that writes their records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm.watched_cluster import WatchedCluster
from tests.waiting import wait_until
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.sentinels import Sentinel, read_sentinel

# All that these scripts have to do with Trainwarden is that they have a name.
STEPS = """\
#!/bin/bash
#SBATCH --requeue
step=$(( ${SLURM_RESTART_COUNT:-0} * 20 ))
for _ in $(seq 20); do step=$((step + 1)); echo "step $step/10000 | loss 2.$step | lr 0.001"; sleep 0.1; done
"""
ON = """\
while true; do step=$((step + 1)); echo "step $step/10000 | loss 2.$step | lr 0.001"; sleep 0.5; done
"""
FIRST = '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && '
# Takes a second of CPU time, as the start of any training does: SLURM shows whole seconds.
LOAD = 'until [ "$(cut -d" " -f14 /proc/$$/stat)" -gt 120 ]; do for ((n = 0; n < 20000; n++)); do :; done; done\n'
# For a script that ends soon: a job that ends before the scheduler is first asked has no record, and one that ends
# before it is marked is not restarted.
UNTIL_MARKED = 'until scontrol show job "$SLURM_JOB_ID" | grep -q Comment=trainwarden:; do sleep 0.2; done\n'
# What its watchdog prints, and then ends the process.
NCCL = (
    'echo "[rank0]:[E1123 10:00:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation '
    'timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 ms before timing out." >&2; '
    "exit 134"
)


@dataclass
class PlainJobs:
    """The jobs of a test, by name, and what is recorded about them: the run of each has its name."""

    watched: WatchedCluster
    folder: Path
    ids: dict[str, int] = field(default_factory=dict)

    def submit(self, name: str, text: str, *options: str) -> None:
        """Submit a script."""
        script = self.folder / f"{name}.sbatch"
        script.write_text(text, encoding="utf-8")
        named = [f"--job-name={name}", f"--output={self.folder}/%x-%j.out", *self.watched.alone, *options]
        self.ids[name] = self.watched.cluster.submit(script, options=named)

    def metadata(self, name: str) -> Metadata | None:
        """The metadata of a job's run."""
        found = read_metadata(self.watched.runs / name)
        return found if isinstance(found, Metadata) else None

    def attempts(self, name: str) -> list[str]:
        """The keys of a run's attempts."""
        found = self.metadata(name)
        return [str(each.key) for each in found.attempts] if found else []

    def keys(self, name: str, count: int) -> list[str]:
        """The keys of the first starts of a job."""
        return [f"slurm:{self.ids[name]}:{number}" for number in range(count)]

    def step(self, name: str) -> int:
        """The last step of a run; -1 before the first."""
        found = read_progress(self.watched.runs / name)
        return found.step if isinstance(found, Progress) and found.step is not None else -1

    def failure(self, name: str) -> str | None:
        """The failure of a run's attempt."""
        found = read_sentinel(self.watched.runs / name / "_error")
        return found.failure if isinstance(found, Sentinel) else None

    def log(self) -> str:
        """What the service has logged so far."""
        return (self.folder / "watch.log").read_text(encoding="utf-8")

    def wait_for_step(self, name: str, step: int) -> None:
        """Wait until a run has come so far."""
        wait_until(lambda: self.step(name) >= step, lambda: f"step {step} of {name}\n{self.log()}", timeout=150)

    def wait_for_status(self, name: str, status: str) -> Metadata:
        """Wait for what the record says."""

        def probe() -> Metadata | None:
            found = self.metadata(name)
            return found if found and found.status == status else None

        return wait_until(probe, lambda: f"{name} is {status}; its record: {self.metadata(name)}")

    def came_back(self, name: str, mode: str) -> None:
        """The run was restarted once, and its log shows that it has passed the step where it broke."""
        incident = self.watched.wait_for_incident(name, 300, failure_mode=mode, state="DONE")
        assert (incident["action"], incident["attempt_key"]) == ("restart", self.keys(name, 1)[0])
        assert self.attempts(name) == self.keys(name, 2)
        assert self.step(name) > 20

    def wait_for_end(self, name: str, ending: str, start: int = 0, seconds: float = 150) -> None:
        """Wait until the service has written that a start of a job has ended so."""
        line = f"run {name}, attempt slurm:{self.ids[name]}:{start}: {ending}"
        wait_until(lambda: line in self.log(), lambda: f"{line}\n{self.log()}", timeout=seconds)


@contextmanager
def watched_jobs(watched: WatchedCluster, folder: Path, rules: str) -> Iterator[PlainJobs]:
    """`trainwarden slurm watch` with these rules while the block runs: on a shared cluster they name the jobs."""
    configuration = folder / "jobs.yml"
    configuration.write_text(f"runs_dir: {watched.runs}\nmark: true\nmarked: false\njobs:\n{rules}", encoding="utf-8")
    configuration.chmod(0o600)
    command = [sys.executable, "-m", "trainwarden", "slurm", "watch", f"--config={configuration}", "--interval=1s"]
    process = None
    jobs = PlainJobs(watched, folder)
    try:
        with (folder / "watch.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, f"--slurm-bin-dir={watched.cluster.bin}"], env=watched.cluster.environment, stderr=log
            )
        yield jobs
        # What it could not do is in its log.
        assert "Traceback" not in jobs.log()
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
        if jobs.ids:
            watched.cluster.run("scancel", *map(str, jobs.ids.values()))
