"""Which job a GPU works for, told by what a real slurmd gives the processes of a job. The GPUs alone are made up."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.unit.exporter.gpu_jobs.node_tree import MINORS, NodeTree, job, jobs_of, samples, training
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm

# slurmd sets SLURM_JOB_GPUS and SLURM_STEP_GPUS only where it has GPUs.
BODY = """\
#!/bin/sh
#SBATCH --nodes=1 --output=/dev/null
export SLURM_JOB_GPUS=1
srun sh -c 'SLURM_STEP_GPUS=1 exec sleep 600' &
wait
"""


def test_the_processes_below_a_real_slurmstepd_are_in_its_job_and_no_others(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(BODY, encoding="utf-8")
    job_id = cluster.submit(script, environment={"TRAINWARDEN_RUN_ID": "r1"})
    tree = NodeTree(tmp_path)
    (tree.rootfs / "etc/passwd").write_bytes(Path("/etc/passwd").read_bytes())
    shown = MINORS.index(1)
    expected = {job(shown, str(job_id), "0", getpass.getuser(), partition="main", run="r1"), training(shown, "r1")}
    try:
        wait_until(cluster.in_state(job_id, "RUNNING"), "the job runs")

        def seen() -> bool:
            for entry in Path("/proc").glob("[0-9]*"):
                link = tree.procfs / entry.name
                if not link.is_symlink():
                    link.symlink_to(entry)
            return jobs_of(samples(tree.collector())) == expected

        forger = subprocess.Popen(
            ["sleep", "600"], env={"SLURM_JOB_ID": "666", "SLURM_JOB_GPUS": "1", "PATH": os.environ["PATH"]}
        )
        try:
            wait_until(seen, f"{expected}, not {jobs_of(samples(tree.collector()))}")
        finally:
            forger.kill()
            forger.wait()
    finally:
        cluster.run("scancel", str(job_id))
