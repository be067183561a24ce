"""The canary on a real SLURM cluster: one job that breaks on schedule and is healed by the path of all other runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.programs import Programs
from tests.slurm.watched_cluster import WatchedCluster, running_watched_cluster
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools
from trainwarden_remediator.canary_job.canary_job import RUN_ID

pytestmark = [
    pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600),
]  # fmt: skip


@pytest.fixture
def watched(slurm_programs: Programs, tools: Tools, tmp_path: Path) -> Iterator[WatchedCluster]:
    """A cluster with all of Trainwarden around it, whose remediator otherwise observes."""
    with running_watched_cluster(slurm_programs, tools, tmp_path, "--canary", "--mode-of-action=observe") as started:
        yield started


@contextmanager
def keeping(watched: WatchedCluster, state: Path) -> Iterator[None]:
    """Keep the canary until the block ends; the keeper is then killed in the middle of whatever it does."""
    flags = ["--driver=slurm", f"--slurm-bin-dir={watched.cluster.bin}", f"--runs-dir={watched.runs}"]
    often = ["--every=12s", "--step-interval=0.2s", "--sbatch-option=--export=ALL,TRAINWARDEN_STALL_SECONDS=8"]
    memory = "--sbatch-option=--mem=0"  # the nodes of this cluster have none to share
    command = [*flags, f"--state-dir={state}", "canary", *often, memory]
    with (state / "keeper.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainwarden_remediator", *command],
            stdout=log,
            stderr=log,
            env=watched.cluster.environment,
        )
        try:
            yield
            assert process.poll() is None, (state / "keeper.log").read_text(encoding="utf-8")
        finally:
            process.kill()
            process.wait()


def jobs_of(cluster: Cluster) -> list[int]:
    """The ids of all jobs of the canary that live."""
    out = cluster.run("squeue", "--noheader", f"--name={RUN_ID}", "--format=%i")
    return [int(word) for word in out.split()]


def test_it_is_healed_after_a_crash_and_after_a_hang_by_one_job(watched: WatchedCluster, tmp_path: Path) -> None:
    cluster = watched.cluster
    with keeping(watched, tmp_path):
        [job_id] = wait_until(lambda: jobs_of(cluster), "the job of the canary")
        wait_until(cluster.in_state(job_id, "RUNNING"), "the canary runs")
    with keeping(watched, tmp_path):
        for mode in ("crash", "stall"):
            healed = watched.wait_for_incident(RUN_ID, failure_mode=mode, state="DONE", seconds=240)
            assert (healed["policy"], healed["job_id"]) == ("canary", str(job_id))
            assert jobs_of(cluster) == [job_id]
    assert watched.metric("trainwarden_remediator_canary_last_healed_timestamp_seconds") >= healed["updated"]
    # It breaks on schedule: no news to people.
    assert [message for message in watched.messages() if RUN_ID in json.dumps(message)] == []
    cluster.run("scancel", str(job_id))
