"""`trainwarden actions` on a real cluster: an evaluation of a checkpoint as a job of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso

pytestmark = pytest.mark.slurm


class Evaluations:
    """A run, an action that submits an evaluation of its checkpoints, and what the evaluations write."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        run = folder / "runs/llama"
        run.mkdir(parents=True)
        self._journal, self._evaluated = run / "events.jsonl", folder / "evaluated"
        self._journal.touch()
        script = folder / "eval.sh"
        script.write_text(
            "#!/bin/sh\n#SBATCH --output=/dev/null\n"
            f'echo "$1 $2 $(id -u) ${{TRAINWARDEN_RUN_ID:-none}}" >> {self._evaluated}\n'
        )
        self._configuration = folder / "actions.yml"
        self._configuration.write_text(
            f"runs_dir: {folder}/runs\nactions:\n  evaluate:\n    event: checkpoint_saved\n"
            f'    sbatch: [--job-name=eval, {script}, "{{path}}", "{{step}}"]\n'
            f"    parameters: {{path: {{type: path, under: [{folder}]}}, step: {{type: int}}}}\n"
        )
        self._configuration.chmod(0o600)

    @property
    def evaluated(self) -> list[str]:
        return self._evaluated.read_text().splitlines() if self._evaluated.exists() else []

    def saved(self, step: int) -> None:
        """Write into the journal that a checkpoint was saved."""
        data = {"path": f"{self._folder}/step_{step}", "step": step}
        line = {"timestamp": to_iso(time.time()), "event_type": "checkpoint_saved", "data": data}
        with self._journal.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def look(self) -> None:
        """Run the service for one look, until what follows from it has ended."""
        self._actions("--config", str(self._configuration), "--once", "--allow-root")

    def claims(self) -> list[dict[str, Any]]:
        """Return what the service did."""
        return [json.loads(line) for line in self._actions("list", "--format=json").splitlines()]

    def _actions(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "trainwarden", "actions", *arguments, f"--state-dir={self._folder}/state"]
        environment = {**self._cluster.environment, "TRAINWARDEN_RUN_ID": "llama"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout


def test_each_saved_checkpoint_is_evaluated_by_one_job_of_the_runs_user(cluster: Cluster, tmp_path: Path) -> None:
    evaluations = Evaluations(cluster, tmp_path)
    evaluations.look()
    evaluations.saved(500)
    evaluations.look()
    evaluations.look()
    (claim,) = evaluations.claims()
    assert claim["state"] == "submitted"
    job_id = int(claim["detail"].removeprefix("job "))
    wait_until(cluster.in_state(job_id, "COMPLETED"), "the evaluation ends")
    assert evaluations.evaluated == [f"{tmp_path}/step_500 500 {os.getuid()} none"]
    assert f"Comment=trainwarden-action:{claim['id']}" in cluster.run("scontrol", "show", "job", str(job_id))
