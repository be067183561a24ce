"""`trainwarden actions` on a real cluster: an evaluation of a checkpoint as a job of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso

pytestmark = pytest.mark.slurm


def test_each_saved_checkpoint_is_evaluated_by_one_job_of_the_runs_user(cluster: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "runs/llama"
    run.mkdir(parents=True)
    journal, evaluated = run / "events.jsonl", tmp_path / "evaluated"
    journal.touch()
    script = tmp_path / "eval.sh"
    script.write_text(
        f'#!/bin/sh\n#SBATCH --output=/dev/null\necho "$1 $2 $(id -u) ${{TRAINWARDEN_RUN_ID:-none}}" >> {evaluated}\n'
    )
    configuration = tmp_path / "actions.yml"
    configuration.write_text(
        f"runs_dir: {tmp_path}/runs\nactions:\n  evaluate:\n    event: checkpoint_saved\n"
        f'    sbatch: [--job-name=eval, {script}, "{{path}}", "{{step}}"]\n'
        f"    parameters: {{path: {{type: path, under: [{tmp_path}]}}, step: {{type: int}}}}\n"
    )
    configuration.chmod(0o600)
    state = f"--state-dir={tmp_path}/state"

    def actions(*arguments: str) -> str:
        command = [sys.executable, "-m", "trainwarden", "actions", *arguments, state]
        environment = {**cluster.environment, "TRAINWARDEN_RUN_ID": "llama"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout

    look = ("--config", str(configuration), "--once", "--allow-root")
    actions(*look)
    data = {"path": f"{tmp_path}/step_500", "step": 500}
    line = {"timestamp": to_iso(time.time()), "event_type": "checkpoint_saved", "data": data}
    journal.write_text(json.dumps(line) + "\n")
    actions(*look)
    actions(*look)
    (claim,) = map(json.loads, actions("list", "--format=json").splitlines())
    assert claim["state"] == "submitted"
    job_id = int(claim["detail"].removeprefix("job "))
    wait_until(cluster.in_state(job_id, "COMPLETED"), "the evaluation ends")
    assert evaluated.read_text() == f"{tmp_path}/step_500 500 {os.getuid()} none\n"
    assert f"Comment=trainwarden-action:{claim['id']}" in cluster.run("scontrol", "show", "job", str(job_id))
