"""SLURM takes every command of the runbooks that its own programs carry out."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.docs.test_runbook_commands import calls
from tests.offenders import assert_none
from tests.slurm.cluster import COMMANDED, Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def job_id(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A held job; at the end the node that was drained takes jobs again."""
    script = tmp_path_factory.mktemp("held") / "held.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --hold --output=/dev/null\nsleep 600\n", encoding="utf-8")
    held = cluster.submit(script)
    yield held
    cluster.run("scancel", str(held))
    cluster.run("scontrol", "update", f"nodename={COMMANDED}", "state=resume")


def test_they_are_taken(cluster: Cluster, job_id: int) -> None:
    commands = [each for program in ("scontrol", "sinfo", "squeue") for each in calls(program)]
    assert len(commands) > 25
    refused = []
    for command in commands:
        here = command
        for place, value in (("JOB", str(job_id)), ("NODE", COMMANDED), ("PARTITION", "spare")):
            here = re.sub(rf"\b{place}\b", value, here)
        done = subprocess.run(
            ["bash", "-c", here], env=cluster.environment, capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode or done.stderr:
            refused.append(f"{command}: status {done.returncode}: {done.stderr.strip()}")
    assert_none(refused)


def test_a_node_that_was_drained_as_they_say_has_the_reason(cluster: Cluster, job_id: int) -> None:
    [command] = [each for each in calls("scontrol") if 'reason="EFA port down"' in each]
    subprocess.run(["bash", "-c", command.replace("NODE", COMMANDED)], env=cluster.environment, check=True)
    shown = cluster.run("scontrol", "show", "node", COMMANDED)
    assert re.search(r"State=\S*DRAIN", shown)
    assert "Reason=EFA port down" in shown
