"""SLURM takes every command of the runbooks that its own programs carry out."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.docs.test_runbook_commands import calls
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm
NODE = "n3"


@pytest.fixture(scope="module")
def job_id(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A held job; at the end the node that was drained takes jobs again."""
    script = tmp_path_factory.mktemp("held") / "held.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --hold --output=/dev/null\nsleep 600\n", encoding="utf-8")
    held = cluster.submit(script)
    yield held
    cluster.run("scancel", str(held))
    cluster.run("scontrol", "update", f"nodename={NODE}", "state=resume")


@pytest.mark.parametrize("command", [each for program in ("scontrol", "sinfo", "squeue") for each in calls(program)])
def test_it_is_taken(cluster: Cluster, job_id: int, command: str) -> None:
    for place, value in (("JOB", str(job_id)), ("NODE", NODE), ("PARTITION", "main")):
        command = re.sub(rf"\b{place}\b", value, command)
    done = subprocess.run(
        ["bash", "-c", command], env=cluster.environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_node_that_was_drained_as_they_say_has_the_reason(cluster: Cluster, job_id: int) -> None:
    [command] = [each for each in calls("scontrol") if 'reason="EFA port down"' in each]
    subprocess.run(["bash", "-c", command.replace("NODE", NODE)], env=cluster.environment, check=True)
    shown = cluster.run("scontrol", "show", "node", NODE)
    assert re.search(r"State=\S*DRAIN", shown)
    assert "Reason=EFA port down" in shown


def test_there_are_commands() -> None:
    assert len(calls("scontrol")) > 20
    assert len(calls("squeue")) > 5
