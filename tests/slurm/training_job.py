"""A training as a batch job: what its output, its record and SLURM say about it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden.record.folder import METADATA, write_json
from trainwarden.record.metadata import Attempt, Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.rank import RankBeat, read_rank
from trainwarden.stack.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "slurm" / "train.sbatch"
# Long enough never to end by itself within a test.
ENDLESS = ("--batch", "64", "--steps", "20000", "--step-seconds", "0.1", "--checkpoint-every", "20")
UNSHARE = ("unshare", "--uts") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--uts")
# Each rank on a host of its own, as far as it can see; srun ends the others when one is lost.
SPREAD = f"""\
#!/bin/bash
#SBATCH --requeue --open-mode=append --nodes=2 --ntasks-per-node=1
echo "start ${{SLURM_RESTART_COUNT:-0}}"
srun --kill-on-bad-exit=1 {shlex.join(UNSHARE)} sh -c \\
    'hostname "host$SLURM_PROCID"; exec python3 {Path(__file__).with_name("endless_training.py")}'
"""


@dataclass(frozen=True)
class TrainingJob:
    """One submitted job of one run, whose record is in `folder`."""

    cluster: Cluster
    run_id: str
    job_id: int
    folder: Path
    output: Path

    @property
    def starts(self) -> int:
        """How often the batch script was started, by the line that it then writes."""
        return sum(line.startswith("start ") for line in self._text().splitlines())

    @property
    def step(self) -> int:
        """The last step that the record knows; -1 before the first."""
        progress = read_progress(self.folder)
        return progress.step if isinstance(progress, Progress) and progress.step is not None else -1

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts in the record, oldest first."""
        metadata = read_metadata(self.folder)
        return metadata.attempts if isinstance(metadata, Metadata) else ()

    def has_passed(self, step: int, seconds: float = 120) -> int:
        """Wait until the training is past `step`; where it is then."""
        self._wait_for(f"step {step + 1}", lambda: self.step > step, seconds)
        return self.step

    def signal_rank(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank's process, as a stranger would: the record says which one it is."""
        beat = read_rank(self.folder, rank)
        assert isinstance(beat, RankBeat)
        assert beat.pid is not None
        os.kill(beat.pid, number)

    def change_record(self, **values: str) -> None:
        """Write into the run's metadata, as anybody may who can write there."""
        metadata = self.folder / METADATA
        write_json(metadata, {**json.loads(metadata.read_text(encoding="utf-8")), **values})

    def state(self) -> str | None:
        """What SLURM says; None where it says nothing."""
        job = self.cluster.job(self.job_id)
        return job.state if job else None

    def wait_for_state(self, state: str, seconds: float = 120) -> None:
        """Wait for what SLURM says."""
        self._wait_for(f"state {state}", lambda: self.state() == state, seconds)

    def _wait_for(self, what: str, probe: Callable[[], bool], seconds: float) -> None:
        def message() -> str:
            return f"{what} of {self.run_id}; it is {self.state()}, at step {self.step}:\n{self._text()[-2000:]}"

        wait_until(probe, message, timeout=seconds)

    def _text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""


def submit(
    cluster: Cluster,
    runs: Path,
    run_id: str,
    script: Path,
    *arguments: str,
    options: Sequence[str] = (),
    stall_seconds: float,
    stale_seconds: float,
) -> TrainingJob:
    """Submit a batch script for a run, as its user would from the folder of the checkout."""
    output = runs.parent / f"{run_id}.out"
    variables = {
        "TRAINWARDEN_RUN_ID": run_id,
        "TRAINWARDEN_RUNS_DIR": str(runs),
        "TRAINWARDEN_STALL_SECONDS": f"{stall_seconds:g}",
        "STALE_MINUTES": f"{stale_seconds / 60:.4g}",
        "MASTER_ADDR": "127.0.0.1",  # no name server knows the three nodes
        "MASTER_PORT": str(free_port()),  # another cluster on this machine has the same job ids
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}",
    }
    named = [f"--comment=trainwarden:{run_id}", f"--chdir={ROOT}", f"--output={output}", *options]
    job_id = cluster.submit(script, *arguments, options=named, environment=variables)
    return TrainingJob(cluster, run_id, job_id, runs / run_id, output)
