"""`srun trainwarden exec` on a real cluster: one for each rank, told apart by what SLURM says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]


def _submit(cluster: Cluster, folder: Path, command: str) -> int:
    script = folder / "job.sbatch"
    exports = f"export PYTHONPATH={ROOT} TRAINWARDEN_RUNS_DIR={folder}/runs TRAINWARDEN_RUN_ID=r"
    body = f"{exports}\nsrun --kill-on-bad-exit=1 {sys.executable} -m trainwarden exec -- {command}"
    script.write_text(f"#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1 --output={folder}/output\n{body}\n")
    return cluster.submit(script)


def _read(folder: Path, name: str) -> dict[str, Any] | None:
    path = folder / "runs/r" / name
    document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return document


def test_the_rank_that_fails_is_named_and_the_run_has_failed(cluster: Cluster, tmp_path: Path) -> None:
    job_id = _submit(cluster, tmp_path, "sh -c 'if [ $SLURM_PROCID = 1 ]; then sleep 1; exit 93; fi; sleep 600'")
    wait_until(cluster.in_state(job_id, "FAILED"), "the job fails", timeout=60)
    error, metadata = _read(tmp_path, "_error"), _read(tmp_path, "metadata.json")
    assert error is not None
    assert (error["rank"], error["exit_code"], error["failure"]) == (1, 93, "launcher_stop")
    assert error["attempt_key"] == f"slurm:{job_id}:0"
    assert metadata is not None
    assert (metadata["status"], len(metadata["attempts"])) == ("failed", 1)


def test_a_job_that_its_user_cancels_is_cancelled_and_its_command_gone(cluster: Cluster, tmp_path: Path) -> None:
    job_id = _submit(cluster, tmp_path, "sleep 600")
    wait_until(lambda: (tmp_path / "runs/r/ranks/1.json").exists() or None, "both run")
    wait_until(lambda: (_read(tmp_path, "metadata.json") or {}).get("status") == "running" or None, "it lives")
    cluster.run("scancel", str(job_id))
    wait_until(cluster.in_state(job_id, "CANCELLED"), "the job is cancelled")
    wait_until(
        lambda: (_read(tmp_path, "metadata.json") or {}).get("status") == "cancelled" or None, "that is recorded"
    )
    assert _read(tmp_path, "_error") is None
