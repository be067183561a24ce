"""Fixtures of the SLURM collector's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.clients.slurm.commands import FakeSlurm


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    """Commands of an empty cluster."""
    return FakeSlurm(tmp_path)
