"""What the tests of SLURM share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.acting_remediator import ActingRemediator
from tests.slurm.cluster import Cluster
from tests.slurm.training_job import SPREAD, UNSHARE
from tests.slurm.watched_cluster import WatchedCluster, shared_watched_cluster
from trainwarden.stack.binaries import Tools


@pytest.fixture(scope="session")
def watched(cluster: Cluster, tools: Tools) -> WatchedCluster:
    """The shared cluster with all of Trainwarden around it, which is shared as well."""
    return shared_watched_cluster(cluster)


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The batch script of a training on two hosts."""
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("host names of their own are not allowed here")
    script = tmp_path_factory.mktemp("spread") / "spread.sbatch"
    script.write_text(SPREAD, encoding="utf-8")
    return script


@pytest.fixture
def acting(cluster: Cluster, tmp_path: Path) -> Iterator[ActingRemediator]:
    """The remediator on the cluster of all tests."""
    made = ActingRemediator(cluster, tmp_path / "state")
    try:
        yield made
    finally:
        made.close()
