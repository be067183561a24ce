"""One real SLURM cluster for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, running_cluster
from tests.slurm.programs import Programs, find_programs
from trainwarden.stack.debian import PackagesUnavailable


@pytest.fixture(scope="session")
def programs() -> Programs:
    """SLURM's programs; without them the tests are skipped, and fail where all must be there."""
    try:
        return find_programs()
    except PackagesUnavailable as error:
        reason = f"SLURM cannot be had: {error}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(programs: Programs) -> Iterator[Cluster]:
    """Three idle nodes."""
    with running_cluster(programs) as started:
        yield started
