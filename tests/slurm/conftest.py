"""One real SLURM cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, running_cluster
from tests.slurm.programs import Programs, find_programs
from trainwarden.stack.debian import PackagesUnavailable


@pytest.fixture(scope="session")
def programs() -> Programs:
    """SLURM's programs."""
    try:
        return find_programs()
    except PackagesUnavailable as error:
        pytest.skip(f"SLURM cannot be had: {error}")


@pytest.fixture(scope="session")
def cluster(programs: Programs) -> Iterator[Cluster]:
    """Three idle nodes."""
    with running_cluster(programs) as started:
        yield started
